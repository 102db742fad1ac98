/* What MPI promises of messages between two nodes, and is easily lost where a layer of its own matches them. Prints "ok CASE".
   usage: between_promises cancel|file|window|buffered|wanted FOLDER */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "end_in_time.h"

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "rank %d: %s (line %d)\n", rank, #condition, __LINE__); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                           \
    }                                                                         \
  } while (0)

static int rank;
enum { LONG = 1 << 20, MANY = 300 };
static char* memory;

/* A send that is to be taken back, and whose receiver comes late: it arrives, or it is cancelled, and the sender knows which.
 */
static void cancel(void) {
  for (int synchronous = 0; synchronous < 2; ++synchronous) {
    int cancelled = 0;
    if (rank == 0) {
      MPI_Request request;
      MPI_Status status;
      (synchronous ? MPI_Issend : MPI_Isend)(memory, LONG, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request);
      MPI_Cancel(&request);
      MPI_Wait(&request, &status);
      MPI_Test_cancelled(&status, &cancelled);
      MPI_Send(&cancelled, 1, MPI_INT, 1, 2, MPI_COMM_WORLD);
    } else {
      usleep(100000);
      MPI_Recv(&cancelled, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (!cancelled) {
        MPI_Recv(memory, LONG, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(memory[0] == 1 && memory[LONG - 1] == 1);
      }
      int there = 1;
      MPI_Iprobe(0, 1, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
      CHECK(!there);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

/* What was sent before a call that all make arrives although its sender is in that call. */
static void send_before(void) {
  if (rank == 0) {
    MPI_Send(memory, LONG, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    for (int at = 0; at < MANY; ++at) {
      MPI_Send(&at, 1, MPI_INT, 1, 3, MPI_COMM_WORLD);
    }
  }
}

static void receive_before(void) {
  if (rank == 1) {
    usleep(50000);
    MPI_Recv(memory, LONG, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(memory[0] == 1 && memory[LONG - 1] == 1);
    for (int at = 0; at < MANY; ++at) {
      int number = -1;
      MPI_Recv(&number, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      CHECK(number == at);
    }
  }
}

static void around(void) {
  send_before();
  receive_before();
}

static void file(const char* folder) {
  char name[4096];
  MPI_File handle;
  (void)snprintf(name, sizeof name, "%s/between", folder);
  around();
  MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &handle);
  around();
  MPI_File_set_view(handle, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
  around();
  MPI_File_close(&handle);
}

static void window(void) {
  MPI_Win handle;
  char* base;
  around();
  MPI_Win_allocate(1 << 16, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &handle);
  MPI_Win_free(&handle);
  around();
  MPI_Win_create(memory, LONG, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &handle);
  MPI_Win_free(&handle);
  around();
  MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &handle);
  MPI_Win_free(&handle);
  MPI_Comm other;
  around();
  MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &other);
  MPI_Comm_free(&other);
  double one = 1, sum = 0;
  around();
  MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  CHECK(sum == 2);
}

/* A buffered send is complete whatever its receiver does. */
static void buffered(void) {
  const int lengths[] = {10, 60000, 100000, 200000, LONG};
  int space = 0;
  for (int each = 0; each < 5; ++each) {
    space += lengths[each] + MPI_BSEND_OVERHEAD;
  }
  void* buffer = malloc((size_t)space);
  MPI_Buffer_attach(buffer, space);
  for (int each = 0; each < 5; ++each) {
    MPI_Bsend(memory, lengths[each], MPI_BYTE, 1 - rank, 10 + each, MPI_COMM_WORLD);
  }
  char* into = malloc(LONG);
  for (int each = 4; each >= 0; --each) {
    MPI_Status status;
    int count = 0;
    memset(into, 0, LONG);
    MPI_Recv(into, LONG, MPI_BYTE, 1 - rank, 10 + each, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    CHECK(count == lengths[each] && into[0] == 1 && into[count - 1] == 1);
  }
  MPI_Buffer_detach(&buffer, &space);
  free(into);
}

/* Many long messages that are received last first: what waits must not keep what is wanted from coming. */
static void wanted(void) {
  enum { COUNT = 48, BYTES = 3 << 20 };
  static MPI_Request requests[COUNT];
  char* all = malloc((size_t)COUNT * BYTES);
  memset(all, 1, (size_t)COUNT * BYTES);
  if (rank == 0) {
    for (int at = 0; at < COUNT; ++at) {
      all[(size_t)at * BYTES] = (char)at;
      MPI_Isend(all + (size_t)at * BYTES, BYTES, MPI_BYTE, 1, at, MPI_COMM_WORLD, &requests[at]);
    }
    MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE);
  } else {
    for (int at = COUNT - 1; at >= 0; --at) {
      MPI_Recv(all + (size_t)at * BYTES, BYTES, MPI_BYTE, 0, at, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      CHECK(all[(size_t)at * BYTES] == (char)at && all[(size_t)at * BYTES + BYTES - 1] == 1);
    }
  }
  free(all);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  memory = malloc(LONG);
  memset(memory, rank == 0 || strcmp(argv[1], "buffered") == 0 ? 1 : 0, LONG);
  if (strcmp(argv[1], "cancel") == 0) {
    cancel();
  } else if (strcmp(argv[1], "file") == 0) {
    file(argv[2]);
  } else if (strcmp(argv[1], "window") == 0) {
    window();
  } else if (strcmp(argv[1], "buffered") == 0) {
    buffered();
  } else {
    wanted();
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    printf("ok %s\n", argv[1]);
  }
  end_in_time();
  MPI_Finalize();
  return 0;
}
