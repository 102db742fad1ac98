/* Messages of several threads at once (MPI_THREAD_MULTIPLE); part of messages.c. */
#include <pthread.h>
#include <stdatomic.h>

enum { LONG_BYTES = 4 << 20 };
static char *long_out, *long_in;
static MPI_Comm of_the_thread;

/* Exchanges long messages with the other rank's thread until rank 0 says that it is enough. */
static atomic_int enough;
static void* exchange_long(void* unused) {
  (void)unused;
  const int peer = rank ^ 1;
  char stop = 0;
  while (!stop) {
    long_out[0] = (char)(rank == 0 && atomic_load(&enough));
    MPI_Sendrecv(long_out, LONG_BYTES, MPI_BYTE, peer, 0, long_in, LONG_BYTES, MPI_BYTE, peer, 0, of_the_thread,
                 MPI_STATUS_IGNORE);
    stop = rank == 0 ? long_out[0] : long_in[0];
  }
  return NULL;
}

static void* exchange_once(void* unused) {
  (void)unused;
  MPI_Sendrecv(long_out, LONG_BYTES, MPI_BYTE, rank ^ 1, 0, long_in, LONG_BYTES, MPI_BYTE, rank ^ 1, 0, of_the_thread,
               MPI_STATUS_IGNORE);
  return NULL;
}

static void both_exchange(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, exchange_once, NULL);
  MPI_Sendrecv(out, LONG_BYTES, MPI_BYTE, rank ^ 1, 0, in, LONG_BYTES, MPI_BYTE, rank ^ 1, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  pthread_join(thread, NULL);
}

static void several_threads(void) {
  static const int sizes[] = {8, 4 << 10, 64 << 10};
  long_out = malloc(LONG_BYTES);
  long_in = malloc(LONG_BYTES);
  memset(long_out, 1, LONG_BYTES);
  memset(long_in, 1, LONG_BYTES);
  MPI_Comm_dup(MPI_COMM_WORLD, &of_the_thread);
  for (int beside = 0; beside < 2; ++beside) {
    pthread_t thread;
    if (beside) {
      pthread_create(&thread, NULL, exchange_long, NULL);
    }
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
      contiguous(sizes[s]);
      measure(beside ? "one way, beside 4 MiB" : "one way", one_way, 0.5);
    }
    if (beside) {
      atomic_store(&enough, 1);
      pthread_join(thread, NULL);
    }
  }
  contiguous(LONG_BYTES);
  measure("exchange by 2 threads at once", both_exchange, 1);
  MPI_Comm_free(&of_the_thread);
  free(long_out);
  free(long_in);
}
