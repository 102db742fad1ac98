/* MPI is started before main() and used after large allocations; the same output with and without Headroom. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank = -1;

__attribute__((constructor)) static void begin(void) {
  MPI_Init(NULL, NULL);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
}

int main(void) {
  const int count = 1 << 20;
  int *in = malloc(sizeof(int) * (size_t)count), *out = malloc(sizeof(int) * (size_t)count), wrong = 0, ranks;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int i = 0; i < count; ++i) {
    in[i] = i + rank;
  }
  MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  for (int i = 0; i < count; ++i) {
    wrong += out[i] != ranks * i + ranks * (ranks - 1) / 2;
  }
  printf("rank %d wrong %d\n", rank, wrong);
  fflush(stdout);
  MPI_Finalize();
  return wrong != 0;
}
