/* Memory is short, then enough for SECONDS, then short again: each rank sweeps MIB before and after. Prints "wrong 0".
   usage: phases MIB SECONDS */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kSweeps = 4 };

static uint64_t use_much(uint64_t words, uint64_t version) {
  uint64_t *array = malloc(words * 8), wrong = 0;
  for (uint64_t i = 0; i < words; ++i) {
    array[i] = i * 31 + version;
  }
  for (uint64_t sweep = 0; sweep < kSweeps; ++sweep) {
    MPI_Barrier(MPI_COMM_WORLD);
    for (uint64_t i = 0; i < words; ++i) {
      wrong += array[i]++ != i * 31 + version + sweep;
    }
  }
  free(array);
  return wrong;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const uint64_t words = argc > 2 ? strtoull(argv[1], NULL, 10) << 17 : 0;
  uint64_t wrong = use_much(words, 1), all_wrong = 0;
  const double until = MPI_Wtime() + (argc > 2 ? atof(argv[2]) : 0);
  for (int goes_on = 1; goes_on;) {
    volatile double sum = 0;
    for (int i = 0; i < 1000 * 1000; ++i) {
      sum += i;
    }
    goes_on = MPI_Wtime() < until;
    MPI_Allreduce(MPI_IN_PLACE, &goes_on, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  }
  wrong += use_much(words, 2);
  MPI_Reduce(&wrong, &all_wrong, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    printf("wrong %llu\n", (unsigned long long)all_wrong);
  }
  MPI_Finalize();
  return wrong != 0;
}
