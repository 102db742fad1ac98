/* Part of completion.c: arrays of requests that are looked at without being ended (MPI_Request_get_status_all and its kin),
   where the library has these calls. */
#pragma once

#include "completion_job.h"

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)

enum { LOOKED_SHORT = 40, LOOKED_LONG = 400000, LOOKED_BETWEEN = 9000 };
/* What lies where in the array. */
enum { EMPTY, SLEEPING, SLEEPING_BETWEEN, SHORT_IN, LONG_IN, AGAIN_IN, BETWEEN_IN, LONG_OUT, MEETING, REALS, LOOKED_AT };
static const int kActive = LOOKED_AT - SHORT_IN;

static unsigned char *looked_in[LOOKED_AT], *looked_out;
static unsigned looked_seed;

static void check_looked(int at, const MPI_Status* status) {
  const int sizes[LOOKED_AT] = {
      [SHORT_IN] = LOOKED_SHORT, [LONG_IN] = LOOKED_LONG, [AGAIN_IN] = LOOKED_LONG, [BETWEEN_IN] = LOOKED_BETWEEN};
  if (at < SHORT_IN) {
    check_status(status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
  } else if (at <= BETWEEN_IN) {
    const int source = at == BETWEEN_IN ? peer_between : from;
    check_status(status, source, 80 + at, sizes[at]);
    CHECK(same(looked_in[at], (size_t)sizes[at], looked_seed));
  }
}

/* Looks by all three calls; `done` says which are complete. Returns how many are, the inactive ones not among them. */
static int look(const MPI_Request* requests, int* done) {
  MPI_Request kept[LOOKED_AT];
  MPI_Status statuses[LOOKED_AT], status;
  int indices[LOOKED_AT], all = -1, index = -1, any = -1, some = -1;
  memcpy(kept, requests, sizeof kept);
  memset(done, 0, LOOKED_AT * sizeof *done);
  memset(&status, 0x77, sizeof status);
  MPI_Request_get_status_any(LOOKED_AT, requests, &index, &any, &status);
  if (!any) {
    CHECK(index == MPI_UNDEFINED);
  } else if (index == MPI_UNDEFINED) { /* none is active */
    check_status(&status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
  } else {
    CHECK(index >= SHORT_IN && index < LOOKED_AT);
    check_looked(index, &status);
  }
  memset(statuses, 0x77, sizeof statuses);
  MPI_Request_get_status_some(LOOKED_AT, requests, &some, indices, statuses);
  CHECK((some == MPI_UNDEFINED) == (any && index == MPI_UNDEFINED));
  for (int i = 0; i < some; ++i) {
    CHECK(indices[i] >= SHORT_IN && indices[i] < LOOKED_AT && !done[indices[i]]);
    done[indices[i]] = 1;
    check_looked(indices[i], &statuses[i]);
  }
  CHECK(!any || index == MPI_UNDEFINED || done[index]); /* what was complete still is */
  memset(statuses, 0x77, sizeof statuses);
  MPI_Request_get_status_all(LOOKED_AT, requests, &all, statuses);
  CHECK((some != kActive && some != MPI_UNDEFINED) || all);
  for (int at = 0; all && at < LOOKED_AT; ++at) {
    check_looked(some != MPI_UNDEFINED ? at : EMPTY, &statuses[at]);
  }
  CHECK(memcmp(requests, kept, sizeof kept) == 0);
  return all && some != MPI_UNDEFINED ? kActive : some;
}

static void end_looked(int way, MPI_Request* requests) {
  MPI_Status statuses[LOOKED_AT];
  int index = 0, flag = 0;
  if (way == 0) {
    MPI_Waitall(LOOKED_AT, requests, statuses);
    for (int at = 0; at < LOOKED_AT; ++at) {
      check_looked(at, &statuses[at]);
    }
    return;
  }
  for (int left = kActive; left > 0; --left) {
    if (way == 1) {
      MPI_Waitany(LOOKED_AT, requests, &index, statuses);
    } else {
      MPI_Testany(LOOKED_AT, requests, &index, &flag, statuses);
      CHECK(flag); /* it was seen to be complete */
    }
    check_looked(index, statuses);
  }
}

static void looked_at(void) {
  MPI_Request requests[LOOKED_AT], sending[3], again;
  MPI_Status status;
  const double one = 1;
  double sum;
  int done[LOOKED_AT], flag = 0, index = 0;
  looked_out = malloc(LOOKED_LONG);
  for (int at = 0; at < LOOKED_AT; ++at) {
    requests[at] = MPI_REQUEST_NULL;
    looked_in[at] = malloc(LOOKED_LONG);
  }
  MPI_Recv_init(looked_in[SLEEPING], 1, MPI_BYTE, from, 9, MPI_COMM_WORLD, &requests[SLEEPING]);
  MPI_Recv_init(looked_in[SLEEPING], 1, MPI_BYTE, peer_between, 9, between, &requests[SLEEPING_BETWEEN]);
  MPI_Recv_init(looked_in[AGAIN_IN], LOOKED_LONG, MPI_BYTE, from, 80 + AGAIN_IN, MPI_COMM_WORLD, &again);
  for (int way = 0; way < 3; ++way) {
    CHECK(look(requests, done) == MPI_UNDEFINED);
    looked_seed = (unsigned)way;
    fill(looked_out, LOOKED_LONG, looked_seed);
    MPI_Irecv(looked_in[SHORT_IN], LOOKED_LONG, MPI_BYTE, from, 80 + SHORT_IN, MPI_COMM_WORLD, &requests[SHORT_IN]);
    MPI_Irecv(looked_in[LONG_IN], LOOKED_LONG, MPI_BYTE, MPI_ANY_SOURCE, 80 + LONG_IN, MPI_COMM_WORLD, &requests[LONG_IN]);
    MPI_Start(&again);
    requests[AGAIN_IN] = again;
    MPI_Irecv(looked_in[BETWEEN_IN], LOOKED_LONG, MPI_BYTE, peer_between, 80 + BETWEEN_IN, between, &requests[BETWEEN_IN]);
    CHECK(look(requests, done) == 0); /* nobody has sent anything */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Isend(looked_out, LOOKED_SHORT, MPI_BYTE, to, 80 + SHORT_IN, MPI_COMM_WORLD, &sending[0]);
    while (look(requests, done) != 1) {
    }
    CHECK(done[SHORT_IN] && look(requests, done) == 1);
    MPI_Barrier(MPI_COMM_WORLD);
    press();
    MPI_Issend(looked_out, LOOKED_LONG, MPI_BYTE, to, 80 + LONG_IN, MPI_COMM_WORLD, &requests[LONG_OUT]);
    MPI_Isend(looked_out, LOOKED_LONG, MPI_BYTE, to, 80 + AGAIN_IN, MPI_COMM_WORLD, &sending[1]);
    MPI_Isend(looked_out, LOOKED_BETWEEN, MPI_BYTE, peer_between, 80 + BETWEEN_IN, between, &sending[2]);
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[MEETING]);
    MPI_Iallreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[REALS]);
    while (look(requests, done) != kActive) {
    }
    CHECK(sum == ranks);
    end_looked(way, requests);
    for (int at = 0; at < LOOKED_AT; ++at) {
      CHECK((requests[at] == MPI_REQUEST_NULL) == (at != SLEEPING && at != SLEEPING_BETWEEN && at != AGAIN_IN));
    }
    requests[AGAIN_IN] = MPI_REQUEST_NULL;
    MPI_Waitall(3, sending, MPI_STATUSES_IGNORE);
    sent += 3;
    ++sent_between;
  }
  /* One that was taken back. */
  MPI_Irecv(looked_in[LONG_IN], 1, MPI_BYTE, from, 90, MPI_COMM_WORLD, &requests[LONG_IN]);
  MPI_Cancel(&requests[LONG_IN]);
  while (!flag) {
    MPI_Request_get_status_any(LOOKED_AT, requests, &index, &flag, &status);
  }
  MPI_Test_cancelled(&status, &flag);
  CHECK(index == LONG_IN && flag);
  MPI_Wait(&requests[LONG_IN], &status);
  MPI_Test_cancelled(&status, &flag);
  CHECK(flag);
  MPI_Request_free(&again);
  MPI_Request_free(&requests[SLEEPING]);
  MPI_Request_free(&requests[SLEEPING_BETWEEN]);
  for (int at = 0; at < LOOKED_AT; ++at) {
    free(looked_in[at]);
  }
  free(looked_out);
}
#else
static void looked_at(void) {}
#endif
