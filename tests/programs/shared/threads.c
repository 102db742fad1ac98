/* Several threads of each rank in MPI calls at once: on communicators of their own, and messages of many sizes, with and
 * without gaps, told apart by their tags alone. Prints "threads ok". */
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

enum { SIZES = 5, WINDOW = 4, GAPS = 3 };
static const int sizes[SIZES] = {1, 100, 3000, 40000, 300000};

static void check(int right, const char* what, int thread, int size) {
  if (!right) {
    fprintf(stderr, "rank %d thread %d: wrong %s of %d integers\n", rank, thread, what, size);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

/* The threads begin at once, so that they meet in everything that is made when it is first used. */
static void* exchange(void* argument) {
  const int thread = (int)(long)argument;
  const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
  for (int round = 0; round < 3; ++round) {
    for (int index = 0; index < SIZES; ++index) {
      const int count = sizes[index];
      MPI_Datatype gaps;
      MPI_Type_vector(count, 1, GAPS, MPI_INT, &gaps);
      MPI_Type_commit(&gaps);
      int* out = calloc((size_t)count * GAPS, sizeof(int));
      int* in[WINDOW];
      MPI_Request requests[2 * WINDOW];
      for (int i = 0; i < count * GAPS; ++i) {
        out[i] = rank * 7919 + thread * 31 + i;
      }
      for (int slot = 0; slot < WINDOW; ++slot) {
        in[slot] = calloc((size_t)count * GAPS, sizeof(int));
        const int tag = 10 * thread + slot;
        MPI_Isend(out, slot % 2 == 0 ? count : 1, slot % 2 == 0 ? MPI_INT : gaps, to, tag, MPI_COMM_WORLD, &requests[slot]);
      }
      for (int slot = WINDOW - 1; slot >= 0; --slot) {
        const int tag = 10 * thread + slot;
        MPI_Message message;
        MPI_Status status;
        int received = 0;
        MPI_Mprobe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &message, &status);
        MPI_Get_count(&status, MPI_INT, &received);
        check(status.MPI_SOURCE == from && status.MPI_TAG == tag && received == count, "envelope", thread, count);
        if (slot < 2) {
          MPI_Imrecv(in[slot], count, MPI_INT, &message, &requests[WINDOW + slot]);
        } else {
          MPI_Imrecv(in[slot], 1, gaps, &message, &requests[WINDOW + slot]);
        }
      }
      MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE);
      for (int slot = 0; slot < WINDOW; ++slot) {
        for (int i = 0; i < count; ++i) {
          const int sent = from * 7919 + thread * 31 + (slot % 2 == 0 ? i : i * GAPS);
          check(in[slot][slot < 2 ? i : i * GAPS] == sent, "content", thread, count);
        }
        free(in[slot]);
      }
      free(out);
      MPI_Type_free(&gaps);
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
  for (long i = 0; i < count; ++i) {
    pthread_create(&threads[i], NULL, exchange, (void*)i);
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
