/* Two ranks exchange known numbers of messages and calls of each kind, rank 0 to rank 1. Long ones, but for those whose
   receiver is late, are synchronous, so that they are fetched and never copied aside. Prints "ok". usage: known_messages KIND
   COUNT [KIND COUNT ...] */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONG = 1 << 20, MIDDLE = 64 << 10, SHORT = 8 };
static int rank;
static char* large;

static void send_or_receive(char* content, int bytes, int synchronous, MPI_Comm comm, int to) {
  if (rank != 0) {
    MPI_Recv(content, bytes, MPI_BYTE, 0, 1, comm, MPI_STATUS_IGNORE);
  } else if (synchronous) {
    MPI_Ssend(content, bytes, MPI_BYTE, to, 1, comm);
  } else {
    MPI_Send(content, bytes, MPI_BYTE, to, 1, comm);
  }
}

/* The receiver asks first for what is sent last, so the sender has to copy aside. (Under no library alone is that allowed.) */
static void send_to_a_late_receiver(void) {
  char content[SHORT] = {0};
  if (rank == 0) {
    MPI_Send(large, LONG, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    MPI_Send(content, SHORT, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
  } else {
    MPI_Recv(content, SHORT, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Recv(large, LONG, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

static void send_between_groups(int count) {
  MPI_Comm between;
  char content[SHORT] = {0};
  MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 1 - rank, 3, &between);
  for (int i = 0; i < count; ++i) {
    send_or_receive(content, SHORT, 0, between, 0);
  }
  MPI_Comm_free(&between);
}

static void send_what_is_forbidden(int count) {
  char content[SHORT] = {0};
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (int i = 0; rank == 0 && i < count; ++i) {
    if (MPI_Send(content, SHORT, MPI_BYTE, 1, -5, MPI_COMM_WORLD) == MPI_SUCCESS) {
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* All are there before the first is asked for. */
static void send_what_is_not_asked_for(int count) {
  char content[SHORT] = {0};
  for (int i = 0; rank == 0 && i < count; ++i) {
    send_or_receive(content, SHORT, 0, MPI_COMM_WORLD, 1);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; rank == 1 && i < count; ++i) {
    send_or_receive(content, SHORT, 0, MPI_COMM_WORLD, 1);
  }
}

static void put(int count, void* part, int bytes) {
  MPI_Win window;
  char content[SHORT] = {0};
  MPI_Win_create(part, bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  MPI_Win_fence(0, window);
  for (int i = 0; rank == 0 && i < count; ++i) {
    MPI_Put(content, SHORT, MPI_BYTE, 1, 0, SHORT, MPI_BYTE, window);
  }
  MPI_Win_fence(0, window);
  MPI_Win_free(&window);
}

/* Of complex numbers: a product whose bits may depend on the order. */
static void multiply(void) {
  double _Complex mine = rank, all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_C_DOUBLE_COMPLEX, MPI_PROD, MPI_COMM_WORLD);
}

static void run(const char* kind, int count) {
  char on_stack[MIDDLE] = {0};
  if (strcmp(kind, "between") == 0) {
    return send_between_groups(count);
  }
  if (strcmp(kind, "forbidden") == 0) {
    return send_what_is_forbidden(count);
  }
  if (strcmp(kind, "unasked") == 0) {
    return send_what_is_not_asked_for(count);
  }
  if (strcmp(kind, "put") == 0) {
    return put(count, large, LONG);
  }
  if (strcmp(kind, "put_on_stack") == 0) {
    return put(count, on_stack, MIDDLE);
  }
  for (int i = 0; i < count; ++i) {
    if (strcmp(kind, "short") == 0) {
      send_or_receive(on_stack, SHORT, 0, MPI_COMM_WORLD, 1);
    } else if (strcmp(kind, "long") == 0) {
      send_or_receive(large, LONG, 1, MPI_COMM_WORLD, 1);
    } else if (strcmp(kind, "stack") == 0) {
      send_or_receive(on_stack, MIDDLE, 1, MPI_COMM_WORLD, 1);
    } else if (strcmp(kind, "late") == 0) {
      send_to_a_late_receiver();
    } else if (strcmp(kind, "barrier") == 0) {
      MPI_Barrier(MPI_COMM_WORLD);
    } else if (strcmp(kind, "multiply") == 0) {
      multiply();
    } else {
      MPI_Abort(MPI_COMM_WORLD, 2);
    }
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  large = calloc(2 * LONG, 1);
  for (int at = 1; at + 1 < argc; at += 2) {
    run(argv[at], atoi(argv[at + 1]));
  }
  free(large);
  if (rank == 0) {
    puts("ok");
  }
  MPI_Finalize();
  return 0;
}
