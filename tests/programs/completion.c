/* Requests of every kind in one array, ended by each function that can: direct messages, persistent ones, nonblocking
   collectives, the MPI library's own (on a communicator between groups, generalised, on files) and none. Also requests that
   are freed or cancelled while they are active, messages that are too long for their receives, messages to oneself, the calls
   with large counts, and receives whose ranks are in calls of the library when the message comes. Prints "ok", how many
   messages this job sent inside the node, and how many on the communicator between groups.
   usage: completion PRESSURE_MIB ROUNDS FOLDER */
#include <mpi.h>
#include <unistd.h>

#include "pressure.h"

static int rank, ranks, to, from;
static MPI_Comm between; /* even and odd ranks */
static long sent, sent_between;
static const char* folder;

static void check_status(const MPI_Status* status, int source, int tag, int count) {
  int got = -1, cancelled = 1;
  MPI_Get_count(status, MPI_BYTE, &got);
  MPI_Test_cancelled(status, &cancelled);
  CHECK(status->MPI_SOURCE == source && status->MPI_TAG == tag && got == count && !cancelled);
}

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
static int peer_between;

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
    if (requests[at] == MPI_REQUEST_NULL || at == INACTIVE) {
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
  }
  for (int at = 0; at < ALL; ++at) {
    CHECK((requests[at] == MPI_REQUEST_NULL) == (at != INACTIVE && at != STARTED && at != SEND_STARTED));
  }
}

/* One array of everything, the rank's sends before or after its receives, ended in one way. */
static void mixed(int way, unsigned seed, MPI_Request inactive, MPI_Request* receive, MPI_Request* send) {
  MPI_Request requests[ALL];
  const unsigned mine = seed + (unsigned)rank;
  fill(small_out, SMALL, mine);
  fill(large_out, LARGE, mine);
  fill(started_out, MEDIUM, mine);
  fill(between_out, MEDIUM, seed);
  one = 1;
  requests[NONE] = MPI_REQUEST_NULL;
  requests[INACTIVE] = inactive;
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
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank % 2 == 0 ? 1 : 0, 8, &between);
  peer_between = rank / 2;
  MPI_Request inactive, receive, send;
  MPI_Recv_init(small_in, 1, MPI_BYTE, from, 9, MPI_COMM_WORLD, &inactive);
  MPI_Recv_init(started_in, MEDIUM, MPI_BYTE, from, 3, MPI_COMM_WORLD, &receive);
  MPI_Send_init(started_out, MEDIUM, MPI_BYTE, to, 3, MPI_COMM_WORLD, &send);
  for (int round = 0; round < rounds; ++round) {
    for (int way = 0; way < WAYS; ++way) {
      mixed(way, (unsigned)(round * WAYS + way), inactive, &receive, &send);
    }
  }
  MPI_Request_free(&inactive);
  MPI_Request_free(&receive);
  MPI_Request_free(&send);
  MPI_Comm_free(&between);
  MPI_Comm_free(&half);
  MPI_File_close(&file);
}

/* Requests that nobody waits for: what they began happens all the same. */
static void freed(void) {
  const int sizes[] = {8, 5000, 200000, 2 << 20};
  for (int i = 0; i < 4; ++i) {
    for (int way = 0; way < 4; ++way) { /* who comes second; what is freed */
      const int count = sizes[i], sends_freed = way % 2 == 0;
      unsigned char *out = malloc((size_t)count), *in = malloc((size_t)count);
      fill(out, (size_t)count, (unsigned)(rank + way));
      memset(in, 1, (size_t)count);
      MPI_Request sending, receiving;
      if (way < 2) {
        MPI_Isend(out, count, MPI_BYTE, to, 20, MPI_COMM_WORLD, &sending);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Irecv(in, count, MPI_BYTE, from, 20, MPI_COMM_WORLD, &receiving);
      } else {
        MPI_Irecv(in, count, MPI_BYTE, from, 20, MPI_COMM_WORLD, &receiving);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Issend(out, count, MPI_BYTE, to, 20, MPI_COMM_WORLD, &sending);
      }
      ++sent;
      MPI_Request_free(sends_freed ? &sending : &receiving);
      CHECK((sends_freed ? sending : receiving) == MPI_REQUEST_NULL);
      MPI_Wait(sends_freed ? &receiving : &sending, MPI_STATUS_IGNORE);
      if (!sends_freed) {
        /* What the sender's end says is that the receive began; this process may still have to copy, which calls MPI. */
        int flag = 0;
        while (!same(in, (size_t)count, (unsigned)(from + way))) {
          MPI_Iprobe(from, 21, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        }
      }
      CHECK(same(in, (size_t)count, (unsigned)(from + way)));
      MPI_Barrier(MPI_COMM_WORLD); /* the peer has what was freed here */
      free(out);
      free(in);
    }
  }
}

static void cancelled(void) {
  MPI_Request request;
  MPI_Status status;
  int flag, count = 100000;
  unsigned char* buffer = calloc(1, (size_t)count);
  for (int round = 0; round < 8; ++round) {
    const int size = round % 2 == 0 ? 4 : count;
    /* Nobody receives: a synchronous message can be taken back. */
    MPI_Issend(buffer, size, MPI_BYTE, to, 30, MPI_COMM_WORLD, &request);
    ++sent;
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    CHECK(flag && request == MPI_REQUEST_NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Iprobe(MPI_ANY_SOURCE, 30, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    CHECK(!flag);
    /* Once it is being received it is not, nor is a receive that has its message. */
    MPI_Request receive;
    MPI_Irecv(buffer, size, MPI_BYTE, from, 31, MPI_COMM_WORLD, &receive);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Issend(buffer, size, MPI_BYTE, to, 31, MPI_COMM_WORLD, &request);
    ++sent;
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Cancel(&receive);
    MPI_Wait(&receive, &status);
    check_status(&status, from, 31, size);
  }
  free(buffer);
}

/* Every way to receive a message that is longer than what it is received into. */
static void truncated(void) {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  const int sizes[] = {2, 39, 128, 8000, 70000, 1 << 20};
  enum { RECV, IRECV, ITEST, ANY, SOME, TEST_ANY, TEST_SOME, TEST_ALL, MRECV, IMRECV, BOTH, STARTED_ONE, KINDS };
  for (int i = 0; i < 6; ++i) {
    for (int kind = 0; kind < KINDS; ++kind) {
      const int count = sizes[i], room = count / 2;
      unsigned char *out = malloc((size_t)count), *in = malloc((size_t)count);
      fill(out, (size_t)count, (unsigned)(rank + kind));
      memset(in, 0x5a, (size_t)count);
      MPI_Request sending = MPI_REQUEST_NULL, request = MPI_REQUEST_NULL;
      MPI_Status status;
      MPI_Message message;
      int error = MPI_SUCCESS, flag = 0, index, done = 0, class;
      status.MPI_ERROR = MPI_SUCCESS;
      ++sent;
      if (kind != BOTH) {
        MPI_Isend(out, count, MPI_BYTE, to, 40, comm, &sending);
      }
      if (kind >= IRECV && kind <= TEST_ALL) {
        MPI_Irecv(in, room, MPI_BYTE, from, 40, comm, &request);
      }
      switch (kind) {
        case RECV:
          error = MPI_Recv(in, room, MPI_BYTE, from, 40, comm, &status);
          break;
        case IRECV:
          error = MPI_Wait(&request, &status);
          break;
        case ITEST:
          while (!flag) {
            error = MPI_Test(&request, &flag, &status);
          }
          break;
        case ANY:
          error = MPI_Waitany(1, &request, &index, &status);
          break;
        case TEST_ANY:
          while (!flag) {
            error = MPI_Testany(1, &request, &index, &flag, &status);
          }
          break;
        case SOME:
          error = MPI_Waitsome(1, &request, &done, &index, &status);
          break;
        case TEST_SOME:
          while (done == 0) {
            error = MPI_Testsome(1, &request, &done, &index, &status);
          }
          break;
        case TEST_ALL:
          while (!flag) {
            error = MPI_Testall(1, &request, &flag, &status);
          }
          break;
        case MRECV:
          MPI_Mprobe(from, 40, comm, &message, &status);
          check_status(&status, from, 40, count);
          error = MPI_Mrecv(in, room, MPI_BYTE, &message, &status);
          break;
        case IMRECV:
          MPI_Mprobe(from, 40, comm, &message, &status);
          MPI_Imrecv(in, room, MPI_BYTE, &message, &request);
          error = MPI_Wait(&request, &status);
          break;
        case BOTH:
          error = MPI_Sendrecv(out, count, MPI_BYTE, to, 40, in, room, MPI_BYTE, from, 40, comm, &status);
          break;
        case STARTED_ONE:
          MPI_Recv_init(in, room, MPI_BYTE, from, 40, comm, &request);
          MPI_Start(&request);
          error = MPI_Wait(&request, &status);
          MPI_Request_free(&request);
          break;
      }
      MPI_Error_class(error, &class);
      if (kind == SOME || kind == TEST_SOME || kind == TEST_ALL) {
        CHECK(class == MPI_ERR_IN_STATUS);
        MPI_Error_class(status.MPI_ERROR, &class);
      }
      CHECK(class == MPI_ERR_TRUNCATE);
      CHECK(status.MPI_SOURCE == from && status.MPI_TAG == 40);
      CHECK(same(in, (size_t)room, (unsigned)(from + kind)) ||
            in[0] == 0x5a); /* what came is undefined, what lies behind is not */
      CHECK(in[room] == 0x5a && in[count - 1] == 0x5a);
      CHECK(request == MPI_REQUEST_NULL);
      MPI_Wait(&sending, MPI_STATUS_IGNORE);
      free(out);
      free(in);
    }
  }
  MPI_Comm_free(&comm);
}

static void to_oneself(void) {
  const int sizes[] = {0, 1, 39, 128, 5000, 70000, 1 << 20, 3 << 20};
  static unsigned char attached[4 << 20];
  MPI_Buffer_attach(attached, sizeof attached);
  for (int i = 0; i < 8; ++i) {
    const int count = sizes[i];
    unsigned char *out = malloc((size_t)count + 1), *in = malloc((size_t)count + 1);
    MPI_Request requests[2];
    MPI_Status status, statuses[2];
    MPI_Message message;
    for (int kind = 0; kind < 10; ++kind) {
      fill(out, (size_t)count, (unsigned)(rank + kind));
      memset(in, 1, (size_t)count);
      if (kind == 9) {
        press();
      }
      ++sent;
      switch (kind) {
        case 0:
        case 1:
          MPI_Irecv(in, count, MPI_BYTE, kind == 0 ? rank : MPI_ANY_SOURCE, 50, MPI_COMM_WORLD, &requests[0]);
          MPI_Send(out, count, MPI_BYTE, rank, 50, MPI_COMM_WORLD);
          MPI_Wait(&requests[0], &status);
          break;
        case 2:
          MPI_Isend(out, count, MPI_BYTE, rank, 50, MPI_COMM_WORLD, &requests[0]);
          MPI_Recv(in, count, MPI_BYTE, rank, 50, MPI_COMM_WORLD, &status);
          MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
          break;
        case 3:
          MPI_Issend(out, count, MPI_BYTE, rank, 50, MPI_COMM_WORLD, &requests[1]);
          MPI_Irecv(in, count, MPI_BYTE, rank, 50, MPI_COMM_WORLD, &requests[0]);
          MPI_Waitall(2, requests, statuses);
          status = statuses[0];
          break;
        case 4:
          MPI_Sendrecv(out, count, MPI_BYTE, rank, 50, in, count, MPI_BYTE, rank, 50, MPI_COMM_WORLD, &status);
          break;
        case 5:
          memcpy(in, out, (size_t)count);
          MPI_Sendrecv_replace(in, count, MPI_BYTE, rank, 50, rank, 50, MPI_COMM_WORLD, &status);
          break;
        case 6:
          MPI_Bsend(out, count, MPI_BYTE, rank, 50, MPI_COMM_WORLD);
          memset(out, 2, (size_t)count);
          MPI_Probe(rank, 50, MPI_COMM_WORLD, &status);
          check_status(&status, rank, 50, count);
          MPI_Recv(in, count, MPI_BYTE, rank, 50, MPI_COMM_WORLD, &status);
          break;
        case 7:
          MPI_Isend(out, count, MPI_BYTE, rank, 50, MPI_COMM_WORLD, &requests[0]);
          MPI_Mprobe(MPI_ANY_SOURCE, 50, MPI_COMM_WORLD, &message, &status);
          MPI_Mrecv(in, count, MPI_BYTE, &message, &status);
          MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
          break;
        case 8:
          MPI_Send_init(out, count, MPI_BYTE, rank, 50, MPI_COMM_WORLD, &requests[1]);
          MPI_Recv_init(in, count, MPI_BYTE, rank, 50, MPI_COMM_WORLD, &requests[0]);
          MPI_Startall(2, requests);
          MPI_Waitall(2, requests, statuses);
          status = statuses[0];
          MPI_Request_free(&requests[0]);
          MPI_Request_free(&requests[1]);
          break;
        case 9: /* MPI lets this wait for ever; Headroom does not, however short memory is */
          MPI_Send(out, count, MPI_BYTE, rank, 50, MPI_COMM_WORLD);
          MPI_Recv(in, count, MPI_BYTE, MPI_ANY_SOURCE, 50, MPI_COMM_WORLD, &status);
          break;
      }
      check_status(&status, rank, 50, count);
      CHECK(same(in, (size_t)count, (unsigned)(rank + kind)));
    }
    free(out);
    free(in);
  }
  int size;
  void* address;
  MPI_Buffer_detach(&address, &size);
}

/* Sends that only end when they are received, to ranks that have asked for them and then went into another call. */
static void progress(void) {
  const int count = 1 << 20;
  unsigned char *out = malloc((size_t)count), *in = malloc((size_t)count);
  const double part = 1;
  double whole;
  for (int kind = 0; kind < 6; ++kind) {
    MPI_Request request, other;
    MPI_Comm made = MPI_COMM_NULL;
    char byte = 1;
    fill(out, (size_t)count, (unsigned)(rank + kind));
    MPI_Irecv(in, count, MPI_BYTE, from, 60, MPI_COMM_WORLD, &request);
    MPI_Irecv(&byte, 1, MPI_BYTE, from, 61, MPI_COMM_WORLD, &other);
    sent += kind == 2 ? 2 : 1;
    for (int step = 0; step < 2; ++step) {
      if ((step == 0) == (rank % 2 == 0)) {
        if (step == 0) {
          usleep(20000); /* so that most receivers are in their calls: some must be */
        }
        (kind % 2 == 0 ? MPI_Ssend : MPI_Send)(out, count, MPI_BYTE, to, 60, MPI_COMM_WORLD);
      } else if (kind == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
      } else if (kind == 1) {
        MPI_Comm_dup(MPI_COMM_WORLD, &made);
      } else if (kind == 2) {
        MPI_Send(&byte, 1, MPI_BYTE, to, 61, MPI_COMM_WORLD);
        MPI_Wait(&other, MPI_STATUS_IGNORE);
      } else if (kind == 3) {
        MPI_Allreduce(&part, &whole, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
      } else if (kind == 4) {
        MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &made);
      } else {
        MPI_Win window;
        MPI_Win_create(&whole, sizeof whole, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
        MPI_Win_free(&window);
      }
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(same(in, (size_t)count, (unsigned)(from + kind)));
    if (kind != 2) {
      MPI_Cancel(&other);
      MPI_Wait(&other, MPI_STATUS_IGNORE);
    }
    if (made != MPI_COMM_NULL) {
      MPI_Comm_free(&made);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

#if MPI_VERSION >= 4
static void with_large_counts(void) {
  const MPI_Count count = 100000;
  unsigned char *out = malloc((size_t)count), *in = malloc((size_t)count);
  static unsigned char attached[400000];
  MPI_Buffer_attach_c(attached, sizeof attached);
  for (int kind = 0; kind < 12; ++kind) {
    MPI_Request request, sending = MPI_REQUEST_NULL;
    MPI_Status status;
    MPI_Message message;
    MPI_Count got;
    fill(out, (size_t)count, (unsigned)(rank + kind));
    memset(in, 1, (size_t)count);
    ++sent;
    const int receives = kind < 8;
    if (receives) {
      MPI_Irecv_c(in, count, MPI_BYTE, from, 70, MPI_COMM_WORLD, &request);
      MPI_Barrier(MPI_COMM_WORLD);
    }
    switch (kind) {
      case 0:
        MPI_Send_c(out, count, MPI_BYTE, to, 70, MPI_COMM_WORLD);
        break;
      case 1:
        MPI_Ssend_c(out, count, MPI_BYTE, to, 70, MPI_COMM_WORLD);
        break;
      case 2:
        MPI_Rsend_c(out, count, MPI_BYTE, to, 70, MPI_COMM_WORLD);
        break;
      case 3:
        MPI_Bsend_c(out, count, MPI_BYTE, to, 70, MPI_COMM_WORLD);
        break;
      case 4:
        MPI_Issend_c(out, count, MPI_BYTE, to, 70, MPI_COMM_WORLD, &sending);
        break;
      case 5:
        MPI_Irsend_c(out, count, MPI_BYTE, to, 70, MPI_COMM_WORLD, &sending);
        break;
      case 6:
        MPI_Ibsend_c(out, count, MPI_BYTE, to, 70, MPI_COMM_WORLD, &sending);
        break;
      case 7:
        MPI_Bsend_init_c(out, count, MPI_BYTE, to, 70, MPI_COMM_WORLD, &sending);
        MPI_Start(&sending);
        MPI_Wait(&sending, MPI_STATUS_IGNORE);
        MPI_Request_free(&sending);
        break;
      case 8:
        MPI_Isend_c(out, count, MPI_BYTE, to, 70, MPI_COMM_WORLD, &sending);
        MPI_Recv_c(in, count, MPI_BYTE, from, 70, MPI_COMM_WORLD, &status);
        break;
      case 9:
        MPI_Isend_c(out, count, MPI_BYTE, to, 70, MPI_COMM_WORLD, &sending);
        MPI_Mprobe(from, 70, MPI_COMM_WORLD, &message, &status);
        MPI_Mrecv_c(in, count, MPI_BYTE, &message, &status);
        break;
      case 10:
        MPI_Sendrecv_c(out, count, MPI_BYTE, to, 70, in, count, MPI_BYTE, from, 70, MPI_COMM_WORLD, &status);
        break;
      case 11:
        memcpy(in, out, (size_t)count);
        MPI_Sendrecv_replace_c(in, count, MPI_BYTE, to, 70, from, 70, MPI_COMM_WORLD, &status);
        break;
    }
    if (receives) {
      MPI_Wait(&request, &status);
    }
    MPI_Wait(&sending, MPI_STATUS_IGNORE);
    check_status(&status, from, 70, (int)count);
    MPI_Get_count_c(&status, MPI_BYTE, &got);
    CHECK(got == count);
    CHECK(same(in, (size_t)count, (unsigned)(from + kind)));
    MPI_Barrier(MPI_COMM_WORLD);
  }
  void* address;
  MPI_Count size;
  MPI_Buffer_detach_c(&address, &size);
  free(out);
  free(in);
}
#else
static void with_large_counts(void) {}
#endif

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  to = (rank + 1) % ranks;
  from = (rank + ranks - 1) % ranks;
  bytes = (size_t)atoi(argv[1]) << 20;
  pressure = malloc(bytes + 1);
  folder = argv[3];
  press();
  arrays(atoi(argv[2]));
  freed();
  cancelled();
  truncated();
  to_oneself();
  progress();
  with_large_counts();
  long mine[2] = {sent, sent_between}, all[2];
  MPI_Reduce(mine, all, 2, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("ok %ld %ld\n", all[0], all[1]);
  }
  MPI_Finalize();
  return 0;
}
