/* What holds of pipes by RPIPE_MPI alone, between ranks 0 and 1: which ends fit, which thread may send, and that MPI_Finalize()
 * ends where much was written and never read. Prints "right" on rank 0. usage: pipe_ways */
#include <errno.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "headroom/rpipe.h"

static int self;
static void expect(int right, const char* what) {
  if (!right) {
    fprintf(stderr, "rank %d: wrong: %s\n", self, what);
    abort();
  }
}

static rpipe_t pipe;

static void* send_from_another_thread(void* unused) {
  (void)unused;
  expect(rpipe_send(pipe, "thread", 7, RPIPE_FOREVER) == 0, "a send of another thread");
  return NULL;
}

int main(int argc, char** argv) {
  int level;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  expect(rpipe_init(&self, NULL) == 0, "rpipe_init");
  struct rpipe_options options = {.size = sizeof options, .backend = RPIPE_MPI};
  const int peer = 1 - self;
  raddr_t buffer;

  /* To itself there are no messages. */
  expect(rpipe_open(&pipe, self, RPIPE_BOTH, &options) == -ENOTSUP, "a pipe to itself");

  /* One end by messages, one through memory: both are told, whichever is first. */
  options.backend = self == 0 ? RPIPE_MPI : RPIPE_NODE;
  expect(rpipe_open(&pipe, peer, RPIPE_BOTH, &options) == 0, "an open");
  const int error = rpipe_alloc(pipe, 1, &buffer, RPIPE_FOREVER);
  expect(error == -EPROTO, rpipe_error(error));
  expect(strstr(rpipe_reason(pipe), "has RPIPE_MPI, the other has not") != NULL, rpipe_reason(pipe));
  MPI_Barrier(MPI_COMM_WORLD); /* who closes first must not be what the other one is told */
  rpipe_close(pipe, RPIPE_NOWAIT);

  /* MPI may want its main thread: what another one has written goes when that one waits. */
  options.backend = RPIPE_MPI;
  options.flags = RPIPE_THREADS;
  options.channel = 1;
  expect(rpipe_open(&pipe, peer, RPIPE_BOTH, &options) == 0, "an open");
  expect(rpipe_send(pipe, "main", 5, RPIPE_FOREVER) == 0, "a send");
  char text[8];
  expect(rpipe_receive(pipe, text, sizeof text, NULL, RPIPE_FOREVER) == 0 && strcmp(text, "main") == 0, "a message");
  pthread_t thread;
  expect(pthread_create(&thread, NULL, send_from_another_thread, NULL) == 0, "a thread");
  expect(rpipe_receive(pipe, text, sizeof text, NULL, RPIPE_FOREVER) == 0 && strcmp(text, "thread") == 0, "a thread's message");
  pthread_join(thread, NULL);
  const int closed = rpipe_close(pipe, RPIPE_FOREVER);
  expect(closed == 0, rpipe_error(closed));

  /* Rank 0 writes 200 MiB in all lengths, of which rank 1 reads one message. */
  options.flags = 0;
  options.channel = 2;
  options.heap_bytes = 256 << 20;
  expect(rpipe_open(&pipe, peer, self == 0 ? RPIPE_WRITER : RPIPE_READER, &options) == 0, "an open");
  if (self == 0) {
    char* const content = calloc(1, 5 << 20);
    for (int each = 0; each < 40; ++each) {
      const int sent = rpipe_send(pipe, content, each % 4 == 0 ? 20 : (size_t)5 << 20, RPIPE_FOREVER);
      expect(sent == 0 || sent == -EPIPE, rpipe_error(sent));
    }
    free(content);
  } else {
    expect(rpipe_receive(pipe, text, 8, NULL, RPIPE_FOREVER) == -EMSGSIZE, "what is longer than there is room for");
    expect(rpipe_read(pipe, &buffer, NULL, RPIPE_FOREVER) == 0 && rpipe_free(buffer) == 0, "the first message");
  }
  const int ended = rpipe_finalize(10000000000);
  expect(ended == 0, rpipe_error(ended));

  /* And pipes may begin anew. */
  expect(rpipe_init(&self, NULL) == 0, "rpipe_init again");
  options.channel = 0;
  expect(rpipe_open(&pipe, peer, RPIPE_BOTH, &options) == 0, "an open");
  expect(rpipe_send(pipe, "again", 6, RPIPE_FOREVER) == 0, "a send");
  expect(rpipe_receive(pipe, text, sizeof text, NULL, RPIPE_FOREVER) == 0 && strcmp(text, "again") == 0, "a message");
  MPI_Finalize();
  expect(rpipe_read(pipe, &buffer, NULL, RPIPE_FOREVER) == -EPIPE, "a read after MPI's end");
  expect(strstr(rpipe_reason(pipe), "MPI has ended") != NULL, rpipe_reason(pipe));
  expect(rpipe_finalize(RPIPE_FOREVER) == 0, "rpipe_finalize after MPI's");
  if (self == 0) {
    printf("right\n");
  }
  return 0;
}
