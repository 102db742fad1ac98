/* Each rank reads and updates its array of MIB at random, ACCESSES times a round, and meets the others at a barrier, unless it
   works alone. Prints "wrong 0". usage: hot_memory MIB ROUNDS ACCESSES [alone] */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const uint64_t words = argc > 3 ? strtoull(argv[1], NULL, 10) << 17 : 1;
  const int rounds = argc > 3 ? atoi(argv[2]) : 0, accesses = argc > 3 ? atoi(argv[3]) : 0;
  uint64_t *array = malloc(words * 8), state = 88172645463325252u + (uint64_t)rank, wrong = 0, all_wrong = 0;
  for (uint64_t i = 0; i < words; ++i) {
    array[i] = i * 31;
  }
  for (int round = 0; round < rounds; ++round) {
    if (argc == 4) {
      MPI_Barrier(MPI_COMM_WORLD);
    }
    for (int access = 0; access < accesses; ++access) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      const uint64_t i = state % words;
      wrong += array[i] % 31 != i * 31 % 31;
      array[i] += 31;
    }
  }
  MPI_Reduce(&wrong, &all_wrong, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("wrong %llu\n", (unsigned long long)all_wrong);
  }
  free(array);
  MPI_Finalize();
  return wrong != 0;
}
