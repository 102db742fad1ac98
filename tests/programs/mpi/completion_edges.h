/* Part of completion.c: requests that are freed or cancelled while they are active, messages that are too long for their
   receives, and messages to oneself. */
#pragma once

#include "completion_job.h"

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

/* A handler of the program's own: how often it was called, and with what last. It sends a message, as programs may. */
static int handled, handled_class;
static MPI_Comm handled_comm;
static void handle(MPI_Comm* comm, int* error, ...) {
  char byte = 1;
  ++handled;
  handled_comm = *comm;
  MPI_Error_class(*error, &handled_class);
  MPI_Sendrecv_replace(&byte, 1, MPI_BYTE, rank, 41, rank, 41, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  ++sent;
}

/* Every way to receive a message that is longer than what it is received into; the communicator's own handler is called. */
static void truncated_on(MPI_Comm comm, int handles) {
  const int sizes[] = {2, 39, 128, 8000, 70000, 1 << 20};
  enum { RECV, IRECV, ITEST, ANY, SOME, TEST_ANY, TEST_SOME, TEST_ALL, ALL_OF_IT, MRECV, IMRECV, BOTH, STARTED_ONE, KINDS };
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
      handled = 0;
      ++sent;
      if (kind != BOTH) {
        MPI_Isend(out, count, MPI_BYTE, to, 40, comm, &sending);
      }
      if (kind >= IRECV && kind <= ALL_OF_IT) {
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
        case ALL_OF_IT:
          error = MPI_Waitall(1, &request, &status);
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
      CHECK(handled == handles && (!handles || (handled_comm == comm && handled_class == class)));
      if (kind == SOME || kind == TEST_SOME || kind == TEST_ALL || kind == ALL_OF_IT) {
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
}

static void truncated(void) {
  MPI_Comm comm, inherits;
  MPI_Errhandler handler;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_create_errhandler(handle, &handler);
  MPI_Comm_set_errhandler(comm, handler);
  MPI_Errhandler_free(&handler);
  truncated_on(comm, 1);
  MPI_Comm_dup(comm, &inherits);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  truncated_on(inherits, 1);
  truncated_on(comm, 0);
  MPI_Comm_free(&inherits);
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
