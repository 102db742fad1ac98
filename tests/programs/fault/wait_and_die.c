/* The last rank kills itself, or aborts the job (or all do), or waits to be killed, while the others wait for it. usage:
 * wait_and_die kill|kill-early|poll|exit|abort|abort-all|sleep: "kill-early" before any message, "poll" while the others poll,
 * "exit" in order but for MPI_Finalize. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  char* memory = malloc(64 << 20);
  memset(memory, 1, 64 << 20);
  const int early = strcmp(argv[1], "kill-early") == 0, polling = strcmp(argv[1], "poll") == 0;
  if (!early) {
    MPI_Barrier(MPI_COMM_WORLD);
  }
  if (rank == 0) {
    printf("waiting\n");
    fflush(stdout);
  }
  if (rank == ranks - 1 && (early || polling || strcmp(argv[1], "kill") == 0)) {
    raise(SIGKILL);
  }
  if (rank == ranks - 1 && strcmp(argv[1], "exit") == 0) {
    exit(3);
  }
  for (int there = 0; polling && !there;) {
    MPI_Iprobe(ranks - 1, 0, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
  }
  if (strcmp(argv[1], "abort-all") == 0 || (rank == ranks - 1 && strcmp(argv[1], "abort") == 0)) {
    MPI_Abort(MPI_COMM_WORLD, 5);
  }
  if (strcmp(argv[1], "sleep") == 0) {
    sleep(60);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
