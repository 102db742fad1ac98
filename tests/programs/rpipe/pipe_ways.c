/* What holds of pipes by RPIPE_MPI alone, between ranks 0 and 1: which ends fit, that waiting in vain ends, which thread may
 * send, and that MPI_Finalize() ends where much was written and never read. Prints "right" on rank 0. usage: pipe_ways */
#include <errno.h>
#include <mpi.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "headroom/rpipe.h"

static int self;
static void expect(int right, const char* what) {
  if (!right) {
    fprintf(stderr, "rank %d: wrong: %s\n", self, what);
    abort();
  }
}

static rpipe_t between;

static void* send_from_another_thread(void* unused) {
  (void)unused;
  expect(rpipe_send(between, "thread", 7, RPIPE_FOREVER) == 0, "a send of another thread");
  return NULL;
}

static void* receive_in_another_thread(void* unused) {
  char text[8];
  (void)unused;
  expect(rpipe_receive(between, text, sizeof text, NULL, RPIPE_FOREVER) == 0 && strcmp(text, "thread") == 0,
         "a thread's message");
  return NULL;
}

static void wait_by_the_descriptor(struct rpipe_options options, int peer) {
  enum { kMessages = 50 };
  expect(rpipe_open(&between, peer, self == 0 ? RPIPE_WRITER : RPIPE_READER, &options) == 0, "an open");
  for (int each = 0; each < kMessages; ++each) {
    if (self == 0) {
      usleep(each % 10 == 0 ? 5000 : 0);
      expect(rpipe_send(between, &each, sizeof each, RPIPE_FOREVER) == 0, "a send");
      continue;
    }
    int number = -1;
    while (rpipe_arm(&between, NULL, 1) == 0) {
      struct pollfd readable = {.fd = rpipe_descriptor(), .events = POLLIN};
      expect(poll(&readable, 1, 60000) == 1, "a descriptor");
    }
    expect(rpipe_receive(between, &number, sizeof number, NULL, RPIPE_NOWAIT) == 0 && number == each, "a message");
  }
  expect(rpipe_close(between, RPIPE_FOREVER) == 0, "a close");
}

/* Both fill what there is: one at least is told, reads and closes; the other is told of that then, if not of both. */
static void wait_for_each_other(struct rpipe_options options, int peer) {
  int error = 0;
  int told = 0;
  options.width = 2;
  expect(rpipe_open(&between, peer, RPIPE_BOTH, &options) == 0, "an open");
  while ((error = rpipe_send(between, "x", 1, RPIPE_FOREVER)) == 0) {
  }
  expect(error == -EDEADLK || error == -EPIPE, rpipe_error(error));
  for (uint32_t each = 0; error == -EDEADLK && each < options.width; ++each) {
    char byte = 0;
    expect(rpipe_receive(between, &byte, 1, NULL, RPIPE_FOREVER) == 0 && byte == 'x', "what had come");
  }
  (void)rpipe_close(between, RPIPE_NOWAIT);
  error = error == -EDEADLK;
  MPI_Allreduce(&error, &told, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  expect(told > 0, "nobody was told");
}

int main(int argc, char** argv) {
  int level;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  expect(rpipe_init(&self, NULL) == 0, "rpipe_init");
  struct rpipe_options options = {.size = sizeof options, .backend = RPIPE_MPI};
  const int peer = 1 - self;
  raddr_t buffer;

  /* To itself there are no messages. */
  expect(rpipe_open(&between, self, RPIPE_BOTH, &options) == -ENOTSUP, "a pipe to itself");

  /* One end by messages, one through memory: both are told, whichever is first. */
  options.backend = self == 0 ? RPIPE_MPI : RPIPE_NODE;
  expect(rpipe_open(&between, peer, RPIPE_BOTH, &options) == 0, "an open");
  const int error = rpipe_alloc(between, 1, &buffer, RPIPE_FOREVER);
  expect(error == -EPROTO, rpipe_error(error));
  expect(strstr(rpipe_reason(between), "has RPIPE_MPI, the other has not") != NULL, rpipe_reason(between));
  MPI_Barrier(MPI_COMM_WORLD); /* who closes first must not be what the other one is told */
  rpipe_close(between, RPIPE_NOWAIT);

  options.backend = RPIPE_MPI;
  wait_by_the_descriptor(options, peer);
  wait_for_each_other(options, peer);

  /* MPI may want its main thread: what another one has written goes when that one waits. */
  options.flags = RPIPE_THREADS;
  options.channel = 1;
  expect(rpipe_open(&between, peer, RPIPE_BOTH, &options) == 0, "an open");
  expect(rpipe_send(between, "main", 5, RPIPE_FOREVER) == 0, "a send");
  char text[8];
  expect(rpipe_receive(between, text, sizeof text, NULL, RPIPE_FOREVER) == 0 && strcmp(text, "main") == 0, "a message");
  pthread_t thread;
  expect(pthread_create(&thread, NULL, send_from_another_thread, NULL) == 0, "a thread");
  expect(rpipe_receive(between, text, sizeof text, NULL, RPIPE_FOREVER) == 0 && strcmp(text, "thread") == 0,
         "a thread's message");
  pthread_join(thread, NULL);
  int closed = rpipe_close(between, RPIPE_FOREVER);
  expect(closed == 0, rpipe_error(closed));

  /* What another thread reads last was read, for the writer that closes; and records are used again while threads close. */
  for (int round = 0; round < 100; ++round) {
    expect(rpipe_open(&between, peer, self == 0 ? RPIPE_WRITER : RPIPE_READER, &options) == 0, "an open");
    if (self == 0) {
      expect(rpipe_send(between, "thread", 7, RPIPE_FOREVER) == 0, "a send");
      closed = rpipe_close(between, RPIPE_FOREVER);
      expect(closed == 0, rpipe_error(closed));
    } else {
      int which;
      expect(rpipe_wait_any(&between, NULL, 1, &which, RPIPE_FOREVER) == 0, "a wait");
      expect(pthread_create(&thread, NULL, receive_in_another_thread, NULL) == 0, "a thread");
      pthread_join(thread, NULL);
      closed = rpipe_close(between, RPIPE_FOREVER);
      expect(closed == 0, rpipe_error(closed));
    }
  }

  /* Rank 0 writes 200 MiB in all lengths, of which rank 1 reads one message. */
  options.flags = 0;
  options.channel = 2;
  options.heap_bytes = 256 << 20;
  expect(rpipe_open(&between, peer, self == 0 ? RPIPE_WRITER : RPIPE_READER, &options) == 0, "an open");
  if (self == 0) {
    char* const content = calloc(1, 5 << 20);
    for (int each = 0; each < 40; ++each) {
      const int sent = rpipe_send(between, content, each % 4 == 0 ? 20 : (size_t)5 << 20, RPIPE_FOREVER);
      expect(sent == 0 || sent == -EPIPE, rpipe_error(sent));
    }
    free(content);
  } else {
    expect(rpipe_receive(between, text, 8, NULL, RPIPE_FOREVER) == -EMSGSIZE, "what is longer than there is room for");
    expect(rpipe_read(between, &buffer, NULL, RPIPE_FOREVER) == 0 && rpipe_free(buffer) == 0, "the first message");
  }
  const int ended = rpipe_finalize(10000000000);
  expect(ended == 0, rpipe_error(ended));

  /* And pipes may begin anew. */
  expect(rpipe_init(&self, NULL) == 0, "rpipe_init again");
  options.channel = 0;
  expect(rpipe_open(&between, peer, RPIPE_BOTH, &options) == 0, "an open");
  expect(rpipe_send(between, "again", 6, RPIPE_FOREVER) == 0, "a send");
  expect(rpipe_receive(between, text, sizeof text, NULL, RPIPE_FOREVER) == 0 && strcmp(text, "again") == 0, "a message");
  /* What was written before MPI_Finalize() is read after it, although the other rank comes to that much earlier. */
  enum { kLate = 1000 };
  static char long_one[1 << 20];
  if (self == 0) {
    memset(long_one, 7, sizeof long_one);
    for (int each = 0; each < kLate; ++each) {
      expect(rpipe_send(between, &each, sizeof each, RPIPE_FOREVER) == 0, "a late send");
    }
    expect(rpipe_send(between, long_one, sizeof long_one, RPIPE_FOREVER) == 0, "a late long send");
  } else {
    usleep(200000);
  }
  MPI_Finalize();
  for (int each = 0; self == 1 && each < kLate; ++each) {
    int number = -1;
    expect(rpipe_receive(between, &number, sizeof number, NULL, RPIPE_FOREVER) == 0 && number == each, "a late message");
  }
  if (self == 1) {
    expect(rpipe_receive(between, long_one, sizeof long_one, NULL, RPIPE_FOREVER) == 0, "a late long message");
    expect(long_one[0] == 7 && memcmp(long_one, long_one + 1, sizeof long_one - 1) == 0, "its content");
  }
  expect(rpipe_read(between, &buffer, NULL, RPIPE_FOREVER) == -EPIPE, "a read after MPI's end");
  expect(strstr(rpipe_reason(between), "MPI has ended") != NULL, rpipe_reason(between));
  expect(rpipe_finalize(RPIPE_FOREVER) == 0, "rpipe_finalize after MPI's");
  if (self == 0) {
    printf("right\n");
  }
  return 0;
}
