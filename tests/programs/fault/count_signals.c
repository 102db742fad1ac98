/* Counts the SIGUSR1 that reach it until SIGTERM does; each rank prints "rank R got N". */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t counted, told;
static void on_signal(int number) {
  if (number == SIGUSR1) {
    ++counted;
  } else {
    ++told;
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  signal(SIGUSR1, on_signal);
  signal(SIGTERM, on_signal);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    printf("waiting\n");
    fflush(stdout);
  }
  for (int i = 0; i < 300 && !counted; ++i) {
    usleep(10000);
  }
  usleep(500000); /* a second one would come now */
  printf("rank %d got %d\n", rank, (int)counted);
  fflush(stdout);
  MPI_Finalize();
  return 0;
}
