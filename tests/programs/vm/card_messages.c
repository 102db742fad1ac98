/* Messages and a window between two ranks on different nodes, with a network card between them, while what they go to leaves
   memory. Prints, on rank 1, how many samples were wrong of each, and how much memory the kernel kept for the card at most (kB)
   beyond what it did after MPI_Init.
   usage: card_messages messages|window|attached|large|kept|waiting|beyond */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t beside = (size_t)112 << 20, bytes = (size_t)8 << 20;
static char *memory, *pressure;
static long pinned_then, most_pinned;
static int rank;

static long status_kb(const char* field) {
  FILE* file = fopen("/proc/self/status", "r");
  char line[256];
  long kb = 0;
  while (fgets(line, sizeof line, file) != NULL) {
    if (strncmp(line, field, strlen(field)) == 0) {
      kb = atol(line + strlen(field));
    }
  }
  fclose(file);
  return kb;
}

static long pinned_kb(void) { return status_kb("VmPin:"); }

static void look_at_pins(void) {
  const long now = pinned_kb() - pinned_then;
  most_pinned = now > most_pinned ? now : most_pinned;
}

static size_t wrong(char content) {
  size_t count = 0;
  for (size_t at = 0; at < bytes; at += 512) {
    count += memory[at] != content;
  }
  return count;
}

static void press(size_t pages, int round) {
  static size_t at = 0;
  for (size_t page = 0; page < pages; ++page, at += 4096) {
    pressure[at % beside] = (char)round;
  }
}

static size_t messages(void) {
  size_t all = 0;
  for (int round = 0; round < 4; ++round) {
    MPI_Request request;
    int done = 0;
    if (rank == 1) {
      memset(memory, 0, bytes);
      MPI_Irecv(memory, (int)bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
      MPI_Send(&done, 1, MPI_INT, 0, 9, MPI_COMM_WORLD);
      for (int looks = 0; !done; ++looks) {
        press(round % 2 != 0 ? beside / 4096 : 256, looks);
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        look_at_pins();
      }
      all += wrong((char)(1 + round));
    } else {
      memset(memory, 1 + round, bytes);
      MPI_Recv(&done, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(memory, (int)bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  return all;
}

/* Put into memory that would have left since the window was made. */
static size_t put_into(MPI_Win window, MPI_Aint there) {
  memset(memory, 0, bytes);
  MPI_Win_fence(0, window);
  press(2 * beside / 4096, 5);
  char* content = malloc(bytes);
  memset(content, 7, bytes);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    MPI_Put(content, (int)bytes, MPI_BYTE, 1, there, (int)bytes, MPI_BYTE, window);
  }
  MPI_Win_fence(0, window);
  return rank == 1 ? wrong(7) : 0;
}

static size_t window(void) {
  MPI_Win window;
  MPI_Win_create(memory, (MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  const size_t count = put_into(window, 0);
  MPI_Win_free(&window);
  return count;
}

static size_t attached(void) {
  MPI_Win window;
  MPI_Aint place[2] = {0, 0}, mine = 0;
  MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  MPI_Win_attach(window, memory, (MPI_Aint)bytes);
  MPI_Get_address(memory, &mine);
  MPI_Allgather(&mine, 1, MPI_AINT, place, 1, MPI_AINT, MPI_COMM_WORLD);
  const size_t count = put_into(window, place[1]);
  MPI_Win_detach(window, memory);
  MPI_Win_free(&window);
  return count;
}

/* A window that may not stay in memory is refused on both ranks, and the job goes on. */
static size_t large(void) {
  MPI_Win window;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int error = MPI_Win_create(pressure, (MPI_Aint)beside, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  int kind = MPI_SUCCESS;
  MPI_Error_class(error, &kind);
  return kind != MPI_ERR_NO_MEM;
}

/* Many messages of many sizes leave nothing behind that the kernel keeps. */
static size_t kept(void) {
  for (int round = 0; round < 1000; ++round) {
    const int count = 1 << (10 + round % 14);
    if (rank == 0) {
      MPI_Send(memory, count, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
    } else {
      MPI_Recv(memory, count, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  return (size_t)(pinned_kb() - pinned_then > 64);
}

/* A long message that nobody receives yet waits where it is sent from: it takes hardly any memory where it goes to. */
static size_t waiting(void) {
  size_t grown = 0;
  memory = pressure;
  bytes = (size_t)48 << 20;
  if (rank == 0) {
    MPI_Request request;
    memset(memory, 3, bytes);
    MPI_Isend(memory, (int)bytes, MPI_BYTE, 1, 4, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else {
    const long before = status_kb("VmRSS:") + pinned_kb();
    int is_there = 0;
    for (int looks = 0; looks < 400; looks += is_there) {
      MPI_Iprobe(0, 4, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE);
      usleep(5000);
    }
    const long more = status_kb("VmRSS:") + pinned_kb() - before;
    printf("rank 1 waiting: %ld kB more\n", more);
    grown = more > 4096;
    MPI_Recv(memory, (int)bytes, MPI_BYTE, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  return grown + wrong(3);
}

/* A message that is larger than the budget arrives like any. */
static size_t beyond(void) {
  memory = pressure;
  bytes = beside;
  memset(memory, rank == 0 ? 9 : 0, bytes);
  if (rank == 0) {
    MPI_Send(memory, (int)bytes, MPI_BYTE, 1, 3, MPI_COMM_WORLD);
    return 0;
  }
  MPI_Recv(memory, (int)bytes, MPI_BYTE, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return wrong(9);
}

/* MPI_Finalize() does not always end over cards that are made of software. */
static void end(int number) {
  (void)number;
  _exit(0);
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    size_t (*run)(void);
  } cases[] = {{"messages", messages}, {"window", window},   {"attached", attached}, {"large", large},
               {"kept", kept},         {"waiting", waiting}, {"beyond", beyond}};
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  memory = malloc(bytes);
  memset(memory, rank == 0 ? 1 : 0, bytes);
  pressure = malloc(beside);
  memset(pressure, 1, beside);
  /* The library has made what it makes at the first message of each kind. */
  MPI_Sendrecv(pressure, 1 << 18, MPI_BYTE, 1 - rank, 5, memory, 1 << 18, MPI_BYTE, 1 - rank, 5, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  memset(memory, rank == 0 ? 1 : 0, bytes);
  MPI_Barrier(MPI_COMM_WORLD);
  pinned_then = pinned_kb();
  for (size_t index = 0; index < sizeof cases / sizeof *cases; ++index) {
    if (argc == 2 && strcmp(argv[1], cases[index].name) == 0) {
      const size_t count = cases[index].run();
      look_at_pins();
      printf("rank %d %s: wrong %zu, pinned %ld\n", rank, argv[1], count, most_pinned);
    }
  }
  fflush(stdout);
  (void)signal(SIGALRM, end);
  alarm(10);
  MPI_Finalize();
  return 0;
}
