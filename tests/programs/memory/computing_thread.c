/* Of rank 0 one thread waits in MPI_Recv while another goes over a little memory that it is always in need of; the other ranks
   go over much until it has done so often enough. Who the two threads are: "both" call MPI; "main" waits, and the one that
   computes never calls MPI. Prints "wrong 0". usage: computing_thread both|main LITTLE_MIB MUCH_MIB PASSES */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "report_wrong.h"

enum { kToWaiting = 1, kFinished = 2 };

static MPI_Comm for_waiting;
static uint64_t *memory, words, passes;
static uint64_t wrong;

static void* wait_in_mpi(void* unused) {
  int token;
  MPI_Recv(&token, 1, MPI_INT, MPI_ANY_SOURCE, kToWaiting, for_waiting, MPI_STATUS_IGNORE);
  return unused;
}

static void* compute(void* unused) {
  for (uint64_t pass = 0; pass < passes; ++pass) {
    for (uint64_t i = 0; i < words; ++i) {
      wrong += memory[i]++ != i + pass;
    }
  }
  return unused;
}

int main(int argc, char** argv) {
  int provided, rank, size, token = 0;
  const int both = argc > 4 && argv[1][0] == 'b';
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  if (argc < 5 || provided < MPI_THREAD_MULTIPLE) {
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_dup(MPI_COMM_WORLD, &for_waiting);
  words = strtoull(argv[rank == 0 ? 2 : 3], NULL, 10) << 17;
  passes = strtoull(argv[4], NULL, 10);
  memory = malloc(words * 8);
  for (uint64_t i = 0; i < words; ++i) {
    memory[i] = i;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    pthread_t thread;
    pthread_create(&thread, NULL, both ? wait_in_mpi : compute, NULL);
    usleep(50000); /* so that it is seen to be idle, too */
    (both ? compute : wait_in_mpi)(NULL);
    if (both) {
      MPI_Send(&token, 1, MPI_INT, 0, kToWaiting, for_waiting);
    }
    pthread_join(thread, NULL);
    for (int other = 1; other < size; ++other) {
      MPI_Send(&token, 1, MPI_INT, other, kFinished, MPI_COMM_WORLD);
    }
  } else {
    /* Rank 0's thread that waits is let go by rank 1, when it has done enough itself. */
    int finished = 0;
    for (uint64_t pass = 0; !finished; ++pass) {
      for (uint64_t i = 0; i < words; i += 512) {
        wrong += memory[i]++ != i + pass;
      }
      if (!both && rank == 1 && pass == 20) {
        MPI_Send(&token, 1, MPI_INT, 0, kToWaiting, for_waiting);
      }
      MPI_Iprobe(0, kFinished, MPI_COMM_WORLD, &finished, MPI_STATUS_IGNORE);
    }
    MPI_Recv(&token, 1, MPI_INT, 0, kFinished, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  return report_wrong(wrong);
}
