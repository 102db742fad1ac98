/* Several threads of each rank in blocking MPI calls at once. Prints "threads ok". */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, ranks;
static MPI_Comm comms[3];

static void* talk(void* argument) {
  const int thread = (int)(long)argument;
  const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
  for (int i = 0; i < 200; ++i) {
    int out = rank * 1000 + i, in = -1, sum = 0, one = 1;
    MPI_Sendrecv(&out, 1, MPI_INT, to, thread, &in, 1, MPI_INT, from, thread, comms[thread], MPI_STATUS_IGNORE);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comms[thread]);
    if (in != from * 1000 + i || sum != ranks) {
      fprintf(stderr, "rank %d thread %d: got %d, %d\n", rank, thread, in, sum);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
  return NULL;
}

int main(int argc, char** argv) {
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  pthread_t threads[3];
  const int count = provided == MPI_THREAD_MULTIPLE ? 3 : 1;
  for (int i = 0; i < 3; ++i) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
  }
  for (long i = 0; i < count; ++i) {
    pthread_create(&threads[i], NULL, talk, (void*)i);
  }
  for (int i = 0; i < count; ++i) {
    pthread_join(threads[i], NULL);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    printf("threads ok\n");
  }
  MPI_Finalize();
  return 0;
}
