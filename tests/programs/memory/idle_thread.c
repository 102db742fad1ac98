/* One thread of rank 0 waits in the library, which copies a communicator, while another one, which has called MPI, does
   nothing; rank 1 computes before it does the same, and needs a slot for that. Prints "wrong 0". usage: idle_thread ROUNDS */
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>

#include "report_wrong.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int known, ends;

static void* do_nothing(void* unused) {
  MPI_Comm copy;
  MPI_Comm_dup(MPI_COMM_SELF, &copy);
  MPI_Comm_free(&copy);
  pthread_mutex_lock(&lock);
  known = 1;
  pthread_cond_broadcast(&changed);
  while (!ends) {
    pthread_cond_wait(&changed, &lock);
  }
  pthread_mutex_unlock(&lock);
  return unused;
}

int main(int argc, char** argv) {
  int provided, rank, wrong = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int rounds = argc > 1 ? atoi(argv[1]) : 0;
  pthread_t thread;
  if (rank == 0) {
    pthread_create(&thread, NULL, do_nothing, NULL);
    pthread_mutex_lock(&lock);
    while (!known) {
      pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (int round = 0; round < rounds; ++round) {
    volatile double work = 0;
    for (int i = 0; rank == 1 && i < 20000000; ++i) {
      work += i;
    }
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    int size;
    MPI_Comm_size(copy, &size);
    wrong += size != 2;
    MPI_Comm_free(&copy);
  }
  if (rank == 0) {
    pthread_mutex_lock(&lock);
    ends = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
  }
  return report_wrong((uint64_t)wrong);
}
