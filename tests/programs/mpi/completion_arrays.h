/* Part of completion.c: requests of every kind in one array, ended by each function that can. */
#pragma once

#include "completion_job.h"

/* How an array is ended. */
enum { WAITALL, TESTALL, WAITANY, TESTANY, WAITSOME, TESTSOME, WAIT, TEST, GET_STATUS, WAYS };

enum { LARGE = 300000, SMALL = 24, MEDIUM = 9000 };
/* What lies where in the array. */
enum {
  RECV_SMALL,
  SEND_SMALL,
  NONE,
  RECV_LARGE,
  SEND_LARGE,
  INACTIVE,
  INACTIVE_BETWEEN,
  STARTED,
  BETWEEN_RECV,
  BETWEEN_SEND,
  BARRIER,
  SUM,
  GENERALISED,
  FILE_WRITE,
  SEND_STARTED,
  RECV_ANY,
  SEND_ANY,
  ALL
};

static int query(void* state, MPI_Status* status) {
  (void)state;
  MPI_Status_set_elements(status, MPI_BYTE, 5);
  MPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = 3;
  status->MPI_TAG = 4;
  return MPI_SUCCESS;
}
static int nothing(void* state) {
  (void)state;
  return MPI_SUCCESS;
}
static int not_cancelled(void* state, int complete) {
  (void)state;
  (void)complete;
  return MPI_SUCCESS;
}

static unsigned char *small_in, *small_out, *large_in, *large_out, *started_in, *started_out, *between_in, *between_out,
    *any_in;
static double one, sum;
static MPI_File file;

static void check_one(int at, const MPI_Status* status, unsigned seed) {
  switch (at) {
    case RECV_SMALL:
      check_status(status, from, 1, SMALL);
      CHECK(same(small_in, SMALL, seed + (unsigned)from));
      break;
    case RECV_LARGE:
      check_status(status, from, 2, LARGE);
      CHECK(same(large_in, LARGE, seed + (unsigned)from));
      break;
    case STARTED:
      check_status(status, from, 3, MEDIUM);
      CHECK(same(started_in, MEDIUM, seed + (unsigned)from));
      break;
    case RECV_ANY:
      check_status(status, from, 5, SMALL);
      CHECK(same(any_in, SMALL, seed + (unsigned)from));
      break;
    case BETWEEN_RECV:
      check_status(status, peer_between, 4, MEDIUM);
      CHECK(same(between_in, MEDIUM, seed));
      break;
    case GENERALISED:
      check_status(status, 3, 4, 5);
      break;
    case SUM:
      CHECK(sum == ranks);
      break;
    default:
      break;
  }
}

static void end_array(int way, MPI_Request* requests, unsigned seed) {
  MPI_Status statuses[ALL];
  int ended[ALL] = {0}, count = 0, indices[ALL], index, flag = 0, left = ALL;
  memset(statuses, 0x77, sizeof statuses);
  MPI_Request kept[ALL];
  memcpy(kept, requests, sizeof kept);
  for (int at = 0; at < ALL; ++at) {
    if (requests[at] == MPI_REQUEST_NULL || at == INACTIVE || at == INACTIVE_BETWEEN) {
      ended[at] = 1;
      --left;
    }
  }
  switch (way) {
    case WAITALL:
    case TESTALL:
      if (way == WAITALL) {
        MPI_Waitall(ALL, requests, statuses);
      }
      while (way == TESTALL && !flag) {
        MPI_Testall(ALL, requests, &flag, statuses);
        if (!flag) {
          CHECK(memcmp(requests, kept, sizeof kept) == 0); /* all are ended or none */
        }
      }
      for (int at = 0; at < ALL; ++at) {
        check_one(at, &statuses[at], seed);
      }
      check_status(&statuses[NONE], MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
      check_status(&statuses[INACTIVE], MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
      check_status(&statuses[INACTIVE_BETWEEN], MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
      break;
    case WAITANY:
    case TESTANY:
    case WAITSOME:
    case TESTSOME:
      while (left > 0) {
        count = 0;
        if (way == WAITANY || way == TESTANY) {
          index = -7;
          if (way == WAITANY) {
            MPI_Waitany(ALL, requests, &index, statuses);
            flag = 1;
          } else {
            MPI_Testany(ALL, requests, &index, &flag, statuses);
            CHECK(flag || index == MPI_UNDEFINED);
          }
          if (flag) {
            indices[count++] = index;
          }
        } else if (way == WAITSOME) {
          MPI_Waitsome(ALL, requests, &count, indices, statuses);
          CHECK(count > 0);
        } else {
          MPI_Testsome(ALL, requests, &count, indices, statuses);
          CHECK(count >= 0);
        }
        for (int i = 0; i < count; ++i) {
          CHECK(indices[i] >= 0 && indices[i] < ALL && !ended[indices[i]]);
          ended[indices[i]] = 1;
          check_one(indices[i], &statuses[i], seed);
          --left;
        }
      }
      /* Nothing is left that is active. */
      flag = 0;
      if (way == WAITANY) {
        MPI_Waitany(ALL, requests, &index, statuses);
        flag = 1;
      } else if (way == TESTANY) {
        MPI_Testany(ALL, requests, &index, &flag, statuses);
      }
      if (way == WAITANY || way == TESTANY) {
        CHECK(flag && index == MPI_UNDEFINED);
        check_status(statuses, MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
      } else {
        (way == WAITSOME ? MPI_Waitsome : MPI_Testsome)(ALL, requests, &count, indices, statuses);
        CHECK(count == MPI_UNDEFINED);
      }
      break;
    default:
      for (int at = ALL - 1; at >= 0; --at) {
        flag = way == WAIT;
        if (way == WAIT) {
          MPI_Wait(&requests[at], &statuses[at]);
        }
        while (!flag) {
          if (way == TEST) {
            MPI_Test(&requests[at], &flag, &statuses[at]);
          } else {
            MPI_Request_get_status(requests[at], &flag, &statuses[at]);
            CHECK(memcmp(&requests[at], &kept[at], sizeof *kept) == 0);
            if (flag) {
              check_one(at, &statuses[at], seed);
              MPI_Wait(&requests[at], &statuses[at]);
            }
          }
        }
        check_one(at, &statuses[at], seed);
      }
      check_status(&statuses[NONE], MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
      check_status(&statuses[INACTIVE], MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
      check_status(&statuses[INACTIVE_BETWEEN], MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
  }
  for (int at = 0; at < ALL; ++at) {
    const int persists = at == INACTIVE || at == INACTIVE_BETWEEN || at == STARTED || at == SEND_STARTED;
    CHECK((requests[at] == MPI_REQUEST_NULL) != persists);
  }
}

/* One array of everything, the rank's sends before or after its receives, ended in one way. */
static void mixed(int way, unsigned seed, MPI_Request inactive, MPI_Request inactive_between, MPI_Request* receive,
                  MPI_Request* send) {
  MPI_Request requests[ALL];
  const unsigned mine = seed + (unsigned)rank;
  fill(small_out, SMALL, mine);
  fill(large_out, LARGE, mine);
  fill(started_out, MEDIUM, mine);
  fill(between_out, MEDIUM, seed);
  one = 1;
  requests[NONE] = MPI_REQUEST_NULL;
  requests[INACTIVE] = inactive;
  requests[INACTIVE_BETWEEN] = inactive_between;
  for (int step = 0; step < 2; ++step) {
    if ((step == 0) == ((rank + (int)seed) % 2 == 0)) {
      (seed % 3 == 0 ? MPI_Issend : MPI_Isend)(small_out, SMALL, MPI_BYTE, to, 1, MPI_COMM_WORLD, &requests[SEND_SMALL]);
      (seed % 2 == 0 ? MPI_Issend : MPI_Isend)(large_out, LARGE, MPI_BYTE, to, 2, MPI_COMM_WORLD, &requests[SEND_LARGE]);
      MPI_Start(send);
      requests[SEND_STARTED] = *send;
      MPI_Isend(between_out, MEDIUM, MPI_BYTE, peer_between, 4, between, &requests[BETWEEN_SEND]);
      MPI_Isend(small_out, SMALL, MPI_BYTE, to, 5, MPI_COMM_WORLD, &requests[SEND_ANY]);
    } else {
      MPI_Irecv(small_in, SMALL + 9, MPI_BYTE, from, 1, MPI_COMM_WORLD, &requests[RECV_SMALL]);
      MPI_Irecv(large_in, LARGE, MPI_BYTE, from, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[RECV_LARGE]);
      MPI_Start(receive);
      requests[STARTED] = *receive;
      MPI_Irecv(between_in, MEDIUM, MPI_BYTE, peer_between, 4, between, &requests[BETWEEN_RECV]);
      MPI_Irecv(any_in, SMALL, MPI_BYTE, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &requests[RECV_ANY]);
    }
  }
  sent += 4;
  ++sent_between;
  MPI_Ibarrier(MPI_COMM_WORLD, &requests[BARRIER]);
  MPI_Iallreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[SUM]);
  MPI_Grequest_start(query, nothing, not_cancelled, NULL, &requests[GENERALISED]);
  requests[FILE_WRITE] = MPI_REQUEST_NULL;
  if (way != TESTALL && way != GET_STATUS) { /* plain MPICH 5.0.2 fails: what was seen complete is freed when seen again */
    MPI_File_iwrite_at(file, (MPI_Offset)rank * LARGE, large_out, LARGE, MPI_BYTE, &requests[FILE_WRITE]);
  }
  if (way != GET_STATUS || seed % 2 == 0) {
    press();
  }
  MPI_Grequest_complete(requests[GENERALISED]);
  end_array(way, requests, seed);
}

static void arrays(int rounds) {
  small_in = malloc(64);
  small_out = malloc(64);
  any_in = malloc(64);
  large_in = malloc(LARGE);
  large_out = malloc(LARGE);
  started_in = malloc(MEDIUM);
  started_out = malloc(MEDIUM);
  between_in = malloc(MEDIUM);
  between_out = malloc(MEDIUM);
  char name[4096];
  snprintf(name, sizeof name, "%s/written", folder);
  CHECK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) == MPI_SUCCESS);
  MPI_Request inactive, inactive_between, receive, send;
  MPI_Recv_init(small_in, 1, MPI_BYTE, from, 9, MPI_COMM_WORLD, &inactive);
  MPI_Recv_init(small_in, 1, MPI_BYTE, peer_between, 9, between, &inactive_between);
  MPI_Recv_init(started_in, MEDIUM, MPI_BYTE, from, 3, MPI_COMM_WORLD, &receive);
  MPI_Send_init(started_out, MEDIUM, MPI_BYTE, to, 3, MPI_COMM_WORLD, &send);
  for (int round = 0; round < rounds; ++round) {
    for (int way = 0; way < WAYS; ++way) {
      mixed(way, (unsigned)(round * WAYS + way), inactive, inactive_between, &receive, &send);
    }
  }
  MPI_Request_free(&inactive);
  MPI_Request_free(&inactive_between);
  MPI_Request_free(&receive);
  MPI_Request_free(&send);
  MPI_File_close(&file);
}
