/* One rank sends to each other one only when that one sleeps in its receive, as the kernel says: each is the sender in turn,
   ROUNDS times. Prints "wrong 0". Needs more ranks than cores, since who waits with a core of its own does not sleep.
   usage: waits_asleep ROUNDS */
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report_wrong.h"

enum { LOOKS = 120000 };
static const double PAUSE = 1e-3; /* seconds */

/* The letter after the name in brackets in /proc/PID/stat. */
static char state_of(int pid) {
  char name[32], text[256];
  snprintf(name, sizeof name, "/proc/%d/stat", pid);
  const int file = open(name, O_RDONLY);
  const ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
  if (file >= 0) {
    close(file);
  }
  text[length > 0 ? length : 0] = 0;
  const char* bracket = strrchr(text, ')');
  return bracket == NULL ? 0 : bracket[2];
}

/* In its receive it may sleep for a moment before, too (a page fault): so three times in a row. Who looks does not sleep: the
   sender of the next round may look at it. */
static void wait_until_asleep(int pid) {
  int asleep = 0;
  for (int look = 0; asleep < 3; ++look) {
    if (look == LOOKS) {
      fprintf(stderr, "process %d never sleeps\n", pid);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    asleep = state_of(pid) == 'S' ? asleep + 1 : 0;
    for (const double until = MPI_Wtime() + PAUSE; MPI_Wtime() < until;) {
      sched_yield();
    }
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int rounds = argc > 1 ? atoi(argv[1]) : 1;
  int rank, ranks, own = getpid(), pids[256];
  uint64_t wrong = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks > 256) {
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Allgather(&own, 1, MPI_INT, pids, 1, MPI_INT, MPI_COMM_WORLD);
  for (int round = 0; round < rounds * ranks; ++round) {
    const int sender = round % ranks;
    for (int to = 0; rank == sender && to < ranks; ++to) {
      if (to != rank) {
        wait_until_asleep(pids[to]);
        MPI_Send(&round, 1, MPI_INT, to, 1, MPI_COMM_WORLD);
      }
    }
    if (rank != sender) {
      int received = -1;
      MPI_Recv(&received, 1, MPI_INT, sender, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      wrong += received != round;
    }
  }
  return report_wrong(wrong);
}
