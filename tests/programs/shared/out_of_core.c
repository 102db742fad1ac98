/* Every rank fills, checks and exchanges arrays that together exceed the budget several times. Prints "wrong 0 checksum X".
   usage: out_of_core MIB_PER_ARRAY ROUNDS; with STATIC_MIB it has so much static data, too, of which it uses a byte */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t value(uint64_t rank, uint64_t index, uint64_t round) {
  return (index + 1) * 0x9e3779b97f4a7c15u ^ (rank << 40) ^ round * 0x2545f4914f6cdd1du;
}

#ifdef STATIC_MIB
static volatile char in_static_data[STATIC_MIB << 20];
#endif

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
#ifdef STATIC_MIB
  in_static_data[rank] = 1;
#endif
  const uint64_t words = strtoull(argv[1], NULL, 10) << 17;
  const int rounds = atoi(argv[2]);
  uint64_t *mine = malloc(words * 8), *received = calloc(words, 8), wrong = 0, checksum = 0;
  for (uint64_t i = 0; i < words; ++i) {
    wrong += received[i] != 0;
  }
  for (int round = 0; round < rounds; ++round) {
    for (uint64_t i = 0; i < words; ++i) {
      mine[i] = value((uint64_t)rank, i, (uint64_t)round);
    }
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    MPI_Request requests[2];
    MPI_Irecv(received, (int)words, MPI_UINT64_T, from, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(mine, (int)words, MPI_UINT64_T, to, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (uint64_t i = 0; i < words; ++i) {
      wrong += received[i] != value((uint64_t)from, i, (uint64_t)round);
      wrong += mine[i] != value((uint64_t)rank, i, (uint64_t)round);
      checksum += received[i] * (i | 1);
    }
    double part = (double)(checksum >> 11) * 1e-3, total;
    MPI_Allreduce(&part, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    uint64_t bits = (uint64_t)total;
    checksum ^= bits;
    MPI_Bcast(mine, (int)words, MPI_UINT64_T, round % ranks, MPI_COMM_WORLD);
    for (uint64_t i = 0; i < words; i += 511) {
      wrong += mine[i] != value((uint64_t)(round % ranks), i, (uint64_t)round);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  uint64_t sums[2] = {wrong, checksum}, all[2];
  MPI_Reduce(sums, all, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("wrong %llu checksum %016llx\n", (unsigned long long)all[0], (unsigned long long)all[1]);
  }
  free(mine);
  free(received);
  MPI_Finalize();
  return wrong != 0;
}
