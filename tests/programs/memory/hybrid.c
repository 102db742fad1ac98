/* MPI and OpenMP: the threads of each rank go over its MIB together, ROUNDS times, and the ranks meet in between; or each
   thread calls MPI itself (multiple), and exchanges a part with the same thread of its neighbours. Prints "wrong 0". usage:
   hybrid MIB ROUNDS funneled|multiple */
#include <mpi.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kPart = 32768 };

static uint64_t expected(uint64_t index, int rank, int round) { return index * 2654435761u + (uint64_t)rank + (uint64_t)round; }

int main(int argc, char** argv) {
  int provided, rank, ranks;
  const int multiple = argc > 3 && strcmp(argv[3], "multiple") == 0;
  MPI_Init_thread(&argc, &argv, multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int64_t words = argc > 3 ? (int64_t)(strtoull(argv[1], NULL, 10) << 17) : 0;
  const int rounds = argc > 3 ? atoi(argv[2]) : 0, threads = omp_get_max_threads();
  uint64_t *array = malloc((size_t)words * 8), *from = malloc((size_t)threads * kPart * 8),
           wrong = provided < MPI_THREAD_FUNNELED;
#pragma omp parallel for schedule(static)
  for (int64_t index = 0; index < words; ++index) {
    array[index] = expected((uint64_t)index, rank, 0);
  }
  const int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
  for (int round = 0; round < rounds; ++round) {
    uint64_t sum = 0, least = 0;
#pragma omp parallel for schedule(static) reduction(+ : wrong, sum)
    for (int64_t index = 0; index < words; ++index) {
      wrong += array[index] != expected((uint64_t)index, rank, round);
      array[index] += 1;
      sum += array[index] - expected((uint64_t)index, rank, round);
    }
    MPI_Allreduce(&sum, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    wrong += least != (uint64_t)words;
#pragma omp parallel if (multiple) reduction(+ : wrong)
    {
      const int first = multiple ? omp_get_thread_num() : 0, end = multiple ? first + 1 : threads;
      for (int thread = first; thread < end; ++thread) {
        const int64_t at = (words - kPart) / threads * thread;
        uint64_t* part = from + (int64_t)thread * kPart;
        MPI_Sendrecv(array + at, kPart, MPI_UINT64_T, right, thread, part, kPart, MPI_UINT64_T, left, thread, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        for (int64_t index = 0; index < kPart; ++index) {
          wrong += part[index] != expected((uint64_t)(at + index), left, round + 1);
        }
      }
    }
  }
  uint64_t all_wrong = 0;
  MPI_Reduce(&wrong, &all_wrong, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("wrong %llu\n", (unsigned long long)all_wrong);
  }
  MPI_Finalize();
  return all_wrong != 0;
}
