// More ranks than a node has processors, and more memory than it has: each rank fills MEBIBYTES, then in each of ROUNDS goes
// over all of it, checks and changes it, exchanges parts of it with the next rank and with one far away, and all check a sum.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define PART 8192  // words exchanged

static uint64_t word(uint64_t rank, uint64_t index, uint64_t round) {
  uint64_t x = (rank << 40) ^ (index << 8) ^ round;
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  return x ^ (x >> 33);
}

static void check(int ok, const char* what, int rank, int round) {
  if (!ok) {
    fprintf(stderr, "rank %d, round %d: %s is wrong\n", rank, round, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

static void exchange(const uint64_t* memory, uint64_t words, int distance, int rank, int ranks, int round) {
  static uint64_t got[PART];
  const int to = (rank + distance) % ranks;
  const int from = (rank - distance + ranks) % ranks;
  const uint64_t first = words - PART;
  MPI_Sendrecv(memory + first, PART, MPI_UINT64_T, to, round, got, PART, MPI_UINT64_T, from, round, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  for (uint64_t index = 0; index < PART; ++index) {
    check(got[index] == word((uint64_t)from, first + index, (uint64_t)round), "a message", rank, round);
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const uint64_t words = strtoull(argv[1], NULL, 10) << 17;
  const int rounds = atoi(argv[2]);
  uint64_t* memory = malloc(words * sizeof *memory);
  for (uint64_t index = 0; index < words; ++index) {
    memory[index] = word((uint64_t)rank, index, 0);
  }
  for (int round = 1; round <= rounds; ++round) {
    for (uint64_t index = 0; index < words; ++index) {
      check(memory[index] == word((uint64_t)rank, index, (uint64_t)round - 1), "memory", rank, round);
      memory[index] = word((uint64_t)rank, index, (uint64_t)round);
    }
    exchange(memory, words, 1, rank, ranks, round);
    exchange(memory, words, ranks / 2, rank, ranks, round);
    int64_t sum = rank;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    check(sum == (int64_t)ranks * (ranks - 1) / 2, "a sum", rank, round);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  if (rank == 0) {
    printf("ok %d\n", ranks);
  }
  free(memory);
  return MPI_Finalize();
}
