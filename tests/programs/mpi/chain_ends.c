/* The edges of point-to-point communication: an open chain, whose ends talk to MPI_PROC_NULL, in every call; and messages that
   are taken back. Prints "ok" and how many messages were received. usage: chain_ends PRESSURE_MIB */
#include <stdint.h>

#include "messages_job.h"

enum { kMost = 300000 };

static unsigned char *out, *in;

static void check_none(const MPI_Status* status) {
  int got = -1;
  MPI_Get_count(status, MPI_BYTE, &got);
  CHECK(status->MPI_SOURCE == MPI_PROC_NULL && status->MPI_TAG == MPI_ANY_TAG && got == 0);
}

/* What came, if anybody was there. */
static void check_received(const MPI_Status* status, int tag, int count, unsigned round) {
  if (from == MPI_PROC_NULL) {
    check_none(status);
    CHECK(in[0] == 0x5a);
    return;
  }
  check_status(status, from, tag, count);
  CHECK(same(in, (size_t)count, (unsigned)from + round));
  ++received;
}

static void both(int count, unsigned round) {
  MPI_Status status;
  fill(out, (size_t)count, (unsigned)rank + round);
  memset(in, 0x5a, (size_t)count + 1);
  MPI_Sendrecv(out, count, MPI_BYTE, to, 1, in, count, MPI_BYTE, from, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
  check_received(&status, 1, count, round);
  memcpy(in, out, (size_t)count);
  MPI_Sendrecv_replace(in, count, MPI_BYTE, to, 2, from, 2, MPI_COMM_WORLD, &status);
  if (from == MPI_PROC_NULL) {
    check_none(&status);
    CHECK(same(in, (size_t)count, (unsigned)rank + round));
  } else {
    check_received(&status, 2, count, round);
  }
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
  MPI_Request request;
  memset(in, 0x5a, (size_t)count + 1);
  MPI_Isendrecv(out, count, MPI_BYTE, to, 3, in, count, MPI_BYTE, from, 3, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE); /* (MPICH itself leaves it empty) */
  CHECK(request == MPI_REQUEST_NULL);
  CHECK(from == MPI_PROC_NULL ? in[0] == 0x5a : same(in, (size_t)count, (unsigned)from + round));
  received += from == MPI_PROC_NULL ? 0 : 1;
#else
  received += from == MPI_PROC_NULL ? 0 : 1;
#endif
}

/* Requests of messages and of none in one array, begun and persistent. */
static void arrays(int count, unsigned round) {
  MPI_Request requests[6];
  MPI_Status statuses[6];
  fill(out, (size_t)count, (unsigned)rank + round);
  memset(in, 0x5a, (size_t)count + 1);
  MPI_Irecv(in, count, MPI_BYTE, from, 4, MPI_COMM_WORLD, &requests[0]);
  MPI_Irecv(in, count, MPI_BYTE, MPI_PROC_NULL, 4, MPI_COMM_WORLD, &requests[1]);
  MPI_Isend(out, count, MPI_BYTE, to, 4, MPI_COMM_WORLD, &requests[2]);
  MPI_Issend(out, count, MPI_BYTE, MPI_PROC_NULL, 4, MPI_COMM_WORLD, &requests[3]);
  MPI_Recv_init(in, count, MPI_BYTE, MPI_PROC_NULL, 5, MPI_COMM_WORLD, &requests[4]);
  MPI_Ssend_init(out, count, MPI_BYTE, MPI_PROC_NULL, 5, MPI_COMM_WORLD, &requests[5]);
  MPI_Startall(2, requests + 4);
  MPI_Waitall(6, requests, statuses);
  check_received(&statuses[0], 4, count, round);
  check_none(&statuses[1]); /* (MPICH leaves the status of a persistent one empty) */
  for (int index = 0; index < 4; ++index) {
    CHECK(requests[index] == MPI_REQUEST_NULL);
  }
  MPI_Startall(2, requests + 4);
  MPI_Wait(&requests[4], MPI_STATUS_IGNORE);
  MPI_Wait(&requests[5], MPI_STATUS_IGNORE);
  MPI_Request_free(&requests[4]);
  MPI_Request_free(&requests[5]);
}

static void sends_and_probes_of_none(void) {
  MPI_Status status;
  MPI_Message message;
  MPI_Request request;
  int flag = 0;
  unsigned char attached[1000 + MPI_BSEND_OVERHEAD];
  MPI_Buffer_attach(attached, sizeof attached);
  MPI_Send(out, 100, MPI_BYTE, MPI_PROC_NULL, 6, MPI_COMM_WORLD);
  MPI_Ssend(out, kMost, MPI_BYTE, MPI_PROC_NULL, 6, MPI_COMM_WORLD);
  MPI_Rsend(out, 100, MPI_BYTE, MPI_PROC_NULL, 6, MPI_COMM_WORLD);
  MPI_Bsend(out, 100, MPI_BYTE, MPI_PROC_NULL, 6, MPI_COMM_WORLD);
  MPI_Ibsend(out, 100, MPI_BYTE, MPI_PROC_NULL, 6, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Irsend(out, 100, MPI_BYTE, MPI_PROC_NULL, 6, MPI_COMM_WORLD, &request);
  while (!flag) {
    MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
  }
  MPI_Probe(MPI_PROC_NULL, 6, MPI_COMM_WORLD, &status);
  check_none(&status);
  MPI_Iprobe(MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status);
  CHECK(flag);
  check_none(&status);
  MPI_Mprobe(MPI_PROC_NULL, 6, MPI_COMM_WORLD, &message, &status);
  CHECK(message == MPI_MESSAGE_NO_PROC);
  check_none(&status);
  MPI_Mrecv(in, 100, MPI_BYTE, &message, &status);
  CHECK(message == MPI_MESSAGE_NULL);
  check_none(&status);
  MPI_Improbe(MPI_PROC_NULL, 6, MPI_COMM_WORLD, &flag, &message, &status);
  CHECK(flag && message == MPI_MESSAGE_NO_PROC);
  MPI_Imrecv(in, 100, MPI_BYTE, &message, &request);
  MPI_Wait(&request, &status);
  check_none(&status);
  void* detached;
  int size;
  MPI_Buffer_detach(&detached, &size);
}

/* A message is taken back, perhaps before anybody asks for it, or it is not: then it is received. `kind`: 0 standard,
   1 synchronous, 2 persistent. In a ring. */
static void take_back(int kind, int count, unsigned round) {
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  MPI_Request sending, receiving;
  MPI_Status status;
  fill(out, (size_t)count, (unsigned)rank + round);
  if (kind == 2) {
    MPI_Send_init(out, count, MPI_BYTE, next, 7, MPI_COMM_WORLD, &sending);
    MPI_Start(&sending);
  } else if (kind == 1) {
    MPI_Issend(out, count, MPI_BYTE, next, 7, MPI_COMM_WORLD, &sending);
  } else {
    MPI_Isend(out, count, MPI_BYTE, next, 7, MPI_COMM_WORLD, &sending);
  }
  int there = 0, mine = 0, theirs = 0, nothing = 0;
  for (int looks = 0; round % 2 == 0 && looks < 1000 && !there; ++looks) {
    MPI_Test(&sending, &there, &status); /* gives it up, or copies it aside */
  }
  if (!there) {
    MPI_Cancel(&sending);
  }
  MPI_Irecv(in, count, MPI_BYTE, previous, 7, MPI_COMM_WORLD, &receiving);
  if (!there) {
    MPI_Wait(&sending, &status);
    MPI_Test_cancelled(&status, &mine);
  }
  if (kind == 2) {
    MPI_Request_free(&sending);
  }
  MPI_Sendrecv(&mine, 1, MPI_INT, next, 8, &theirs, 1, MPI_INT, previous, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (theirs) {
    MPI_Cancel(&receiving);
  }
  MPI_Wait(&receiving, &status);
  MPI_Test_cancelled(&status, &nothing);
  CHECK(nothing == theirs);
  if (!theirs) {
    check_status(&status, previous, 7, count);
    CHECK(same(in, (size_t)count, (unsigned)previous + round));
  }
  MPI_Barrier(MPI_COMM_WORLD); /* what comes next is not mistaken for it, when nobody waits for that any more */
  fill(out, (size_t)count, (unsigned)rank + round + 1);
  MPI_Sendrecv(out, count, MPI_BYTE, next, 7, in, count, MPI_BYTE, previous, 7, MPI_COMM_WORLD, &status);
  check_status(&status, previous, 7, count);
  CHECK(same(in, (size_t)count, (unsigned)previous + round + 1));
}

/* A receive that waits, persistent, is taken back and begun again. */
static void take_back_receive(int count, unsigned round) {
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  MPI_Request request;
  MPI_Status status;
  int cancelled = 0;
  MPI_Recv_init(in, count, MPI_BYTE, previous, 9, MPI_COMM_WORLD, &request);
  MPI_Start(&request);
  MPI_Cancel(&request);
  MPI_Wait(&request, &status);
  MPI_Test_cancelled(&status, &cancelled);
  CHECK(cancelled);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Start(&request);
  fill(out, (size_t)count, (unsigned)rank + round);
  MPI_Send(out, count, MPI_BYTE, next, 9, MPI_COMM_WORLD);
  MPI_Wait(&request, &status);
  check_status(&status, previous, 9, count);
  CHECK(same(in, (size_t)count, (unsigned)previous + round));
  MPI_Request_free(&request);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  to = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
  from = rank > 0 ? rank - 1 : MPI_PROC_NULL;
  bytes = argc > 1 ? (size_t)atoi(argv[1]) << 20 : 1 << 20;
  pressure = malloc(bytes);
  out = malloc(4 << 20); /* evictable */
  in = malloc(4 << 20);
  press();
  const int sizes[] = {1, 40, 1000, 9000, 70000, kMost};
  for (unsigned round = 0; round < 6; ++round) {
    both(sizes[round], round);
    arrays(sizes[round], round + 50);
    press();
  }
  sends_and_probes_of_none();
  for (unsigned round = 0; round < 12; ++round) {
    for (int kind = 0; kind < 3; ++kind) {
      take_back(kind, sizes[round / 2], 100 + round);
    }
    take_back_receive(sizes[round / 2], 200 + round);
    if (round % 3 == 0) {
      press();
    }
  }
  report_received();
  MPI_Finalize();
  return 0;
}
