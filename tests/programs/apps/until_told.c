/* Each rank goes over its array until SIGUSR1 has reached all of them, then waits for a second one for half a second and prints
   "rank R got N wrong W". Rank 0 prints "waiting" when all arrays are filled.
   usage: until_told MIB */
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile sig_atomic_t counted;
static void on_signal(int number) {
  (void)number;
  ++counted;
}

int main(int argc, char** argv) {
  signal(SIGUSR1, on_signal);
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const uint64_t words = strtoull(argv[1], NULL, 10) << 17;
  uint64_t *array = malloc(words * 8), wrong = 0, round = 0;
  for (uint64_t i = 0; i < words; ++i) {
    array[i] = (uint64_t)rank << 40 ^ i;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    printf("waiting\n");
    fflush(stdout);
  }
  for (int all = 0; !all;) {
    ++round;
    for (uint64_t i = 0; i < words; ++i) {
      wrong += array[i]++ != ((uint64_t)rank << 40 ^ i) + round - 1;
    }
    const int told = counted > 0;
    MPI_Allreduce(&told, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  }
  usleep(500000);
  usleep(500000); /* the first is cut short by a second signal */
  printf("rank %d got %d wrong %llu\n", rank, (int)counted, (unsigned long long)wrong);
  fflush(stdout);
  MPI_Finalize();
  return wrong != 0;
}
