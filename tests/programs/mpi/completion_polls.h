/* Part of completion.c: ranks that poll nothing but the library, while the rank that sends what they poll for waits until they
   have received a synchronous message: for that they have posted a receive. */
#pragma once

#include <unistd.h>

#include "completion_job.h"

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
#define HAS_STATUS_OF_SEVERAL
#endif

enum {
  POLL_TEST,
  POLL_ALL,
  POLL_ANY,
  POLL_SOME,
  POLL_STATUS,
  POLL_PROBE,
  POLL_MATCHED,
#ifdef HAS_STATUS_OF_SEVERAL
  POLL_STATUS_ALL,
  POLL_STATUS_ANY,
  POLL_STATUS_SOME,
#endif
  POLLS
};

/* Polls until the message from `source` is there. */
static void poll_for_it(int how, int source, MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Message message;
  MPI_Status status;
  int flag = 0, index = 0, number = -1;
  if (how != POLL_PROBE && how != POLL_MATCHED) {
    MPI_Irecv(&number, 1, MPI_INT, source, 100, comm, &request);
  }
  while (!flag) {
    switch (how) {
      case POLL_TEST:
        MPI_Test(&request, &flag, &status);
        break;
      case POLL_ALL:
        MPI_Testall(1, &request, &flag, &status);
        break;
      case POLL_ANY:
        MPI_Testany(1, &request, &index, &flag, &status);
        break;
      case POLL_SOME:
        MPI_Testsome(1, &request, &flag, &index, &status);
        break;
      case POLL_STATUS:
        MPI_Request_get_status(request, &flag, &status);
        break;
      case POLL_PROBE:
        MPI_Iprobe(source, 100, comm, &flag, &status);
        break;
      case POLL_MATCHED:
        MPI_Improbe(source, 100, comm, &flag, &message, &status);
        break;
#ifdef HAS_STATUS_OF_SEVERAL
      case POLL_STATUS_ALL:
        MPI_Request_get_status_all(1, &request, &flag, &status);
        break;
      case POLL_STATUS_ANY:
        MPI_Request_get_status_any(1, &request, &index, &flag, &status);
        break;
      case POLL_STATUS_SOME:
        MPI_Request_get_status_some(1, &request, &flag, &index, &status);
        break;
#endif
    }
  }
  if (how == POLL_PROBE) {
    MPI_Recv(&number, 1, MPI_INT, source, 100, comm, &status);
  } else if (how == POLL_MATCHED) {
    MPI_Mrecv(&number, 1, MPI_INT, &message, &status);
  }
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  CHECK(number == how);
}

static int in_merged(int other) { return other / 2 + (other % 2 == 0 ? 0 : ranks / 2); }

static void polled(void) {
  const int count = 100000, sends_first = rank / distance % 2 == 0;
  unsigned char *out = malloc((size_t)count), *in = malloc((size_t)count);
  MPI_Comm merged; /* all ranks; the library's, since it descends from one between groups */
  MPI_Intercomm_merge(between, rank % 2, &merged);
  for (int how = 0; how < POLLS; ++how) {
    MPI_Request request;
    fill(out, (size_t)count, (unsigned)(rank + how));
    MPI_Irecv(in, count, MPI_BYTE, from, 101, MPI_COMM_WORLD, &request);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int step = 0; step < 2; ++step) {
      if ((step == 0) != sends_first) {
        poll_for_it(how, in_merged(from), merged);
        continue;
      }
      usleep(2000); /* so that those who poll first do so already */
      MPI_Ssend(out, count, MPI_BYTE, to, 101, MPI_COMM_WORLD);
      MPI_Send(&how, 1, MPI_INT, in_merged(to), 100, merged);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(same(in, (size_t)count, (unsigned)(from + how)));
    ++sent;
    ++sent_between;
  }
  MPI_Comm_free(&merged);
  free(out);
  free(in);
}
