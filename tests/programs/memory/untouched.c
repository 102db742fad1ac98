/* Memory that is allocated and never touched, beside some that is used. Each round every page of the latter is written, and all
   ranks meet. Prints how long the rounds took, and "wrong 0".
   usage: untouched MIB_UNTOUCHED MIB_USED ROUNDS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 4) {
    return 2;
  }
  const size_t untouched = (size_t)atol(argv[1]) << 20, used = (size_t)atol(argv[2]) << 20;
  const int rounds = atoi(argv[3]);
  char* volatile reserved = malloc(untouched);
  volatile char* memory = malloc(used);
  int rank, wrong = 0, sum = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const double begin = MPI_Wtime();
  for (int round = 0; round < rounds; ++round) {
    for (size_t at = 0; at < used; at += 4096) {
      wrong += round > 0 && memory[at] != (char)(round - 1 + at / 4096);
      memory[at] = (char)(round + at / 4096);
    }
    int one = 1;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  const double seconds = MPI_Wtime() - begin;
  int all = 0;
  MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("%.3f s\nwrong %d\n", seconds, all);
  }
  free((void*)memory);
  free(reserved);
  MPI_Finalize();
  return 0;
}
