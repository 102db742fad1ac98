/* Threads that all accumulate at once, into windows of every rank. Arguments: threads, rounds. Prints "ok CALLS". */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { LONG = 3000 };
static int rank, size, threads, rounds;
static MPI_Win window;
static int64_t* part; /* a counter, then LONG sums */

static void* work(void* number) {
  int64_t one = 1, before, operands[LONG];
  const int first = (int)(intptr_t)number;
  for (int index = 0; index < LONG; ++index) operands[index] = index;
  for (int round = 0; round < rounds; ++round) {
    const int target = (first + round + rank) % size;
    MPI_Fetch_and_op(&one, &before, MPI_INT64_T, target, 0, MPI_SUM, window);
    MPI_Accumulate(operands, LONG, MPI_INT64_T, target, 1, LONG, MPI_INT64_T, MPI_SUM, window);
    MPI_Win_flush(target, window);
    if (before < 0 || before >= (int64_t)threads * rounds * size) {
      fprintf(stderr, "rank %d: counted %lld\n", rank, (long long)before);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
  return NULL;
}

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  threads = atoi(argv[1]);
  rounds = atoi(argv[2]);
  MPI_Win_allocate((LONG + 1) * sizeof(int64_t), sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD, &part, &window);
  for (int index = 0; index <= LONG; ++index) part[index] = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock_all(0, window);
  pthread_t all[16];
  for (int thread = 0; thread < threads; ++thread) pthread_create(&all[thread], NULL, work, (void*)(intptr_t)thread);
  for (int thread = 0; thread < threads; ++thread) pthread_join(all[thread], NULL);
  MPI_Win_unlock_all(window);
  MPI_Barrier(MPI_COMM_WORLD);
  int64_t times = part[0], sum = 0;
  for (int index = 0; index < LONG; ++index) {
    if (part[1 + index] != times * index) {
      fprintf(stderr, "rank %d: element %d is %lld after %lld sums\n", rank, index, (long long)part[1 + index],
              (long long)times);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
  MPI_Win_free(&window);
  MPI_Reduce(&times, &sum, 1, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0 && sum == (int64_t)threads * rounds * size) printf("ok %lld\n", 2 * (long long)sum);
  MPI_Finalize();
  return 0;
}
