/* Rounds of ranks that sweep an array each, update and check it, and meet at a barrier. Prints "wrong 0" and, for each round,
   the MiB that all ranks of the node read from storage, and when the last of them ended it (s since 1970).
   usage: rounds MIB ROUNDS [SWEEPS A ROUND] */
#include <headroom/headroom.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kMostRounds = 100 };

static uint64_t bytes_read(void) {
  struct headroom_statistics now = {.size = sizeof now};
  return headroom_read_statistics != NULL && headroom_read_statistics(&now) == 0 ? now.read_bytes : 0;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const uint64_t words = argc > 2 ? strtoull(argv[1], NULL, 10) << 17 : 0;
  const int rounds = argc > 2 ? atoi(argv[2]) : 0, sweeps = argc > 3 ? atoi(argv[3]) : 1;
  uint64_t *array = malloc(words * 8), wrong = 0;
  /* One after the other, so that it is known of each how much it uses. */
  for (int turn = 0; turn < size; ++turn) {
    for (uint64_t i = 0; turn == rank && i < words; ++i) {
      array[i] = i * 31 + (uint64_t)rank;
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  static uint64_t mine[kMostRounds], all[kMostRounds];
  static double ends[kMostRounds], last[kMostRounds];
  for (int round = 0; round < rounds && round < kMostRounds; ++round) {
    const uint64_t before = bytes_read();
    for (int sweep = 0; sweep < sweeps; ++sweep) {
      for (uint64_t i = 0; i < words; ++i) {
        wrong += array[i] != i * 31 + (uint64_t)rank + (uint64_t)(round * sweeps + sweep);
        array[i] += 1;
      }
    }
    mine[round] = bytes_read() - before;
    ends[round] = now();
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Reduce(mine, all, rounds, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  MPI_Reduce(ends, last, rounds, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  uint64_t all_wrong = 0;
  MPI_Reduce(&wrong, &all_wrong, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    for (int round = 0; round < rounds && round < kMostRounds; ++round) {
      printf("round %d read %llu until %.6f\n", round, (unsigned long long)(all[round] >> 20), last[round]);
    }
    printf("wrong %llu\n", (unsigned long long)all_wrong);
  }
  free(array);
  MPI_Finalize();
  return wrong != 0;
}
