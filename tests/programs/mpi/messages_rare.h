/* Part of messages.c: calls that programs seldom use. MPI_Isendrecv by size, datatype and source, MPI_Iprobe of every size,
   statuses of messages that are no whole number of elements, handles that pass through integers (Fortran's, or the standard
   ABI's, which has no Fortran). */
#pragma once

#include "messages_job.h"

#ifdef MPI_ABI_VERSION
typedef int Number;
#define REQUEST_NUMBER MPI_Request_toint
#define NUMBERED_REQUEST MPI_Request_fromint
#define MESSAGE_NUMBER MPI_Message_toint
#define NUMBERED_MESSAGE MPI_Message_fromint
#else
typedef MPI_Fint Number;
#define REQUEST_NUMBER MPI_Request_c2f
#define NUMBERED_REQUEST MPI_Request_f2c
#define MESSAGE_NUMBER MPI_Message_c2f
#define NUMBERED_MESSAGE MPI_Message_f2c
#endif

static const int rare_sizes[] = {0, 1, 128, 129, 512, 513, 8168, 8169, 16384, 65536, 262145, 1 << 20};
enum { RARE_SIZES = sizeof rare_sizes / sizeof *rare_sizes };

static void sent_and_received(unsigned char* out, unsigned char* in) {
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
  MPI_Request request;
  for (int s = 0; s < RARE_SIZES; ++s) {
    const int count = rare_sizes[s];
    MPI_Datatype apart;
    MPI_Type_vector(count, 1, 2, MPI_BYTE, &apart);
    MPI_Type_commit(&apart);
    for (int way = 0; way < 4; ++way) {
      const unsigned seed = (unsigned)(rank + s + way), theirs = (unsigned)(from + s + way);
      fill(out, (size_t)count, seed);
      memset(in, 0x5a, 2 * (size_t)count + 8);
      if (way < 2) {
        MPI_Isendrecv(out, count, MPI_BYTE, to, s, in, count + 5, MPI_BYTE, way == 0 ? from : MPI_ANY_SOURCE, s, MPI_COMM_WORLD,
                      &request);
      } else if (way == 2) {
        MPI_Isendrecv(out, count, MPI_BYTE, to, s, in, 1, apart, from, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
      } else {
        memcpy(in, out, (size_t)count);
        MPI_Isendrecv_replace(in, count, MPI_BYTE, to, s, from, s, MPI_COMM_WORLD, &request);
      }
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      for (int at = 0; way == 2 && at < count; ++at) {
        CHECK(in[2 * at] == (unsigned char)((size_t)at * 31 + theirs + ((size_t)at >> 12)));
        CHECK(at + 1 == count || in[2 * at + 1] == 0x5a);
      }
      CHECK(way == 2 || same(in, (size_t)count, theirs));
      ++received;
      MPI_Barrier(MPI_COMM_WORLD); /* one that takes any tag takes none of the next round's */
    }
    MPI_Type_free(&apart);
  }
#else
  (void)out;
  (void)in;
#endif
}

static void probed_for(unsigned char* out, unsigned char* in) {
  for (int s = 0; s < 2 * RARE_SIZES; ++s) {
    const int count = rare_sizes[s / 2];
    MPI_Request request;
    MPI_Status status;
    int flag = 0;
    fill(out, (size_t)count, (unsigned)(rank + s));
    MPI_Isend(out, count, MPI_BYTE, to, 100 + s, MPI_COMM_WORLD, &request);
    while (!flag) {
      MPI_Iprobe(s % 2 == 0 ? from : MPI_ANY_SOURCE, s % 2 == 0 ? MPI_ANY_TAG : 100 + s, MPI_COMM_WORLD, &flag, &status);
    }
    check_status(&status, from, 100 + s, count);
    MPI_Recv(in, count, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
    check_status(&status, from, 100 + s, count);
    CHECK(same(in, (size_t)count, (unsigned)(from + s)));
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    ++received;
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

/* Two and a half elements, of an int and a double each; and none. */
static void counted(void) {
  struct {
    int whole;
    double part;
  } out[3] = {{rank, 0.5}, {rank + 1, 1.5}, {rank + 2, 2.5}}, in[3];
  const int ones[2] = {1, 1}, twos[2] = {2, 1};
  const MPI_Aint places[2] = {0, (char*)&out[0].part - (char*)&out[0]}, ends[2] = {0, 2 * (MPI_Aint)sizeof out[0]};
  MPI_Datatype element, exact, half, types[2] = {MPI_INT, MPI_DOUBLE};
  MPI_Type_create_struct(2, ones, places, types, &element);
  MPI_Type_create_resized(element, 0, sizeof out[0], &exact);
  MPI_Type_commit(&exact);
  const MPI_Datatype parts[2] = {exact, MPI_INT};
  MPI_Type_create_struct(2, twos, ends, parts, &half);
  MPI_Type_commit(&half);
  for (int rounds = 0; rounds < 4; ++rounds) {
    MPI_Request request;
    MPI_Status status;
    int count = -1, elements = -1;
    MPI_Count many = -1;
    memset(in, 0, sizeof in);
    MPI_Irecv(in, 3, exact, from, 7, MPI_COMM_WORLD, &request);
    if (rounds % 2 == 0) {
      MPI_Send(out, 1, half, to, 7, MPI_COMM_WORLD);
    } else {
      MPI_Ssend(out, 0, half, to, 7, MPI_COMM_WORLD);
    }
    MPI_Wait(&request, &status);
    MPI_Get_count(&status, exact, &count);
    MPI_Get_elements(&status, exact, &elements);
    MPI_Get_elements_x(&status, exact, &many);
    if (rounds % 2 == 0) {
      CHECK(count == MPI_UNDEFINED && elements == 5 && many == 5);
      CHECK(in[1].whole == from + 1 && in[1].part == 1.5 && in[2].whole == from + 2 && in[2].part == 0);
    } else {
      CHECK(count == 0 && elements == 0 && many == 0);
    }
    ++received;
  }
  MPI_Type_free(&element);
  MPI_Type_free(&exact);
  MPI_Type_free(&half);
}

/* Handles that a program makes a number of and gets back. */
static void converted(void) {
  for (int rounds = 0; rounds < 3; ++rounds) {
    int in = -1, out = rank + rounds, flag;
    MPI_Request receive, send;
    MPI_Message message;
    MPI_Irecv(&in, 1, MPI_INT, from, 50, MPI_COMM_WORLD, &receive);
    MPI_Isend(&out, 1, MPI_INT, to, 50, MPI_COMM_WORLD, &send);
    const Number numbers[2] = {REQUEST_NUMBER(receive), REQUEST_NUMBER(send)};
    MPI_Request both[2] = {NUMBERED_REQUEST(numbers[0]), NUMBERED_REQUEST(numbers[1])};
    CHECK(both[0] == receive && both[1] == send);
    MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
    CHECK(in == from + rounds && both[0] == MPI_REQUEST_NULL && both[1] == MPI_REQUEST_NULL);
    MPI_Isend(&out, 1, MPI_INT, to, 51, MPI_COMM_WORLD, &send);
    MPI_Improbe(from, 51, MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE);
    if (!flag) {
      MPI_Mprobe(from, 51, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    }
    message = NUMBERED_MESSAGE(MESSAGE_NUMBER(message));
    in = -1;
    MPI_Imrecv(&in, 1, MPI_INT, &message, &receive);
    CHECK(message == MPI_MESSAGE_NULL);
    MPI_Wait(&receive, MPI_STATUS_IGNORE);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    CHECK(in == from + rounds);
    received += 2;
  }
}

static void rare(void) {
  unsigned char *out = malloc(1 << 20), *in = malloc((2 << 20) + 8);
  sent_and_received(out, in);
  press();
  probed_for(out, in);
  counted();
  converted();
  free(out);
  free(in);
}
