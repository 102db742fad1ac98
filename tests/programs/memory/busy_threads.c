/* Each rank computes in THREADS threads and meets the others at a barrier, ROUNDS times. In every second round one rank
   computes alone, so that all of its threads have a core. Prints "wrong 0". usage: busy_threads THREADS ROUNDS */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kMostThreads = 16 };

static void* compute(void* argument) {
  uint64_t value = (uint64_t)(uintptr_t)argument + 1;
  for (int step = 0; step < 30 * 1000 * 1000; ++step) {
    value ^= value << 13;
    value ^= value >> 7;
    value ^= value << 17;
  }
  return (void*)(uintptr_t)(value == 0);
}

int main(int argc, char** argv) {
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  const int threads = argc > 2 ? atoi(argv[1]) : 1, rounds = argc > 2 ? atoi(argv[2]) : 0;
  int rank, size, wrong = 0, all_wrong = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int round = 0; round < rounds; ++round) {
    pthread_t thread[kMostThreads];
    const int computes = round % 2 == 0 || round / 2 % size == rank ? threads : 0;
    for (int each = 0; each < computes && each < kMostThreads; ++each) {
      pthread_create(&thread[each], NULL, compute, (void*)(uintptr_t)each);
    }
    for (int each = 0; each < computes && each < kMostThreads; ++each) {
      void* result = NULL;
      pthread_join(thread[each], &result);
      wrong += result != NULL;
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Reduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("wrong %d\n", all_wrong);
  }
  MPI_Finalize();
  return wrong;
}
