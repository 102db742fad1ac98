/* Part of messages.c: each way to send with each way to receive, sizes around every threshold. */
#pragma once

#include "messages_job.h"

enum { SEND, SSEND, RSEND, BSEND, ISEND, ISSEND, IRSEND, IBSEND, SEND_INIT, SSEND_INIT, RSEND_INIT, BSEND_INIT, SENDS };
enum { RECV, RECV_ANY, IRECV, IRECV_TEST, PROBE, MPROBE, IMPROBE, RECV_INIT, RECEIVES };

/* Types of the tests' own are freed as soon as a call has them: while the message is on its way, or before it is begun. */
static void let_go(MPI_Datatype type) {
  if (type != MPI_BYTE) {
    MPI_Type_free(&type);
  }
}

static MPI_Request begin_send(int kind, void* out, int count, MPI_Datatype type, int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  switch (kind) {
    case SEND:
      MPI_Send(out, count, type, to, tag, MPI_COMM_WORLD);
      break;
    case SSEND:
      MPI_Ssend(out, count, type, to, tag, MPI_COMM_WORLD);
      break;
    case RSEND:
      MPI_Rsend(out, count, type, to, tag, MPI_COMM_WORLD);
      break;
    case BSEND:
      MPI_Bsend(out, count, type, to, tag, MPI_COMM_WORLD);
      break;
    case ISEND:
      MPI_Isend(out, count, type, to, tag, MPI_COMM_WORLD, &request);
      break;
    case ISSEND:
      MPI_Issend(out, count, type, to, tag, MPI_COMM_WORLD, &request);
      break;
    case IRSEND:
      MPI_Irsend(out, count, type, to, tag, MPI_COMM_WORLD, &request);
      break;
    case IBSEND:
      MPI_Ibsend(out, count, type, to, tag, MPI_COMM_WORLD, &request);
      break;
    case SEND_INIT:
      MPI_Send_init(out, count, type, to, tag, MPI_COMM_WORLD, &request);
      let_go(type);
      MPI_Start(&request);
      break;
    case SSEND_INIT:
      MPI_Ssend_init(out, count, type, to, tag, MPI_COMM_WORLD, &request);
      let_go(type);
      MPI_Startall(1, &request);
      break;
    case RSEND_INIT:
      MPI_Rsend_init(out, count, type, to, tag, MPI_COMM_WORLD, &request);
      let_go(type);
      MPI_Start(&request);
      break;
    case BSEND_INIT:
      MPI_Bsend_init(out, count, type, to, tag, MPI_COMM_WORLD, &request);
      let_go(type);
      MPI_Start(&request);
      break;
  }
  if (kind < SEND_INIT) {
    let_go(type);
  }
  return request;
}

static void end_send(int kind, MPI_Request* request) {
  MPI_Wait(request, MPI_STATUS_IGNORE);
  if (kind >= SEND_INIT) {
    CHECK(*request != MPI_REQUEST_NULL);
    MPI_Request_free(request);
  }
  CHECK(*request == MPI_REQUEST_NULL);
}

/* `count`: of bytes that come. */
static void receive(int kind, void* in, int count, int room, MPI_Datatype type, int tag) {
  MPI_Status status;
  MPI_Message message;
  MPI_Request request;
  int flag = 0;
  switch (kind) {
    case RECV:
      MPI_Recv(in, room, type, from, tag, MPI_COMM_WORLD, &status);
      break;
    case RECV_ANY:
      MPI_Recv(in, room, type, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
      break;
    case IRECV:
      MPI_Irecv(in, room, type, from, tag, MPI_COMM_WORLD, &request);
      let_go(type);
      MPI_Wait(&request, &status);
      break;
    case IRECV_TEST:
      MPI_Irecv(in, room, type, from, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
      let_go(type);
      while (!flag) {
        MPI_Test(&request, &flag, &status);
      }
      break;
    case PROBE:
      MPI_Probe(from, tag, MPI_COMM_WORLD, &status);
      check_status(&status, from, tag, count);
      MPI_Recv(in, room, type, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
      break;
    case MPROBE:
      MPI_Mprobe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &message, &status);
      check_status(&status, from, tag, count);
      MPI_Mrecv(in, room, type, &message, &status);
      CHECK(message == MPI_MESSAGE_NULL);
      break;
    case IMPROBE:
      while (!flag) {
        MPI_Improbe(from, tag, MPI_COMM_WORLD, &flag, &message, &status);
      }
      MPI_Imrecv(in, room, type, &message, &request);
      let_go(type);
      MPI_Waitall(1, &request, &status);
      break;
    case RECV_INIT:
      MPI_Recv_init(in, room, type, from, tag, MPI_COMM_WORLD, &request);
      let_go(type);
      MPI_Start(&request);
      MPI_Wait(&request, &status);
      MPI_Request_free(&request);
      break;
  }
  if (kind == RECV || kind == RECV_ANY || kind == PROBE || kind == MPROBE) {
    let_go(type);
  }
  check_status(&status, from, tag, count);
  ++received;
}

/* A message to the next rank in one way, and one from the rank before in the other; `content`: of bytes. */
static void transfer(int sends, int receives, void* out, int sent_count, MPI_Datatype sent, void* in, int room,
                     MPI_Datatype taken, int content, int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (sends == RSEND || sends == IRSEND || sends == RSEND_INIT) {
    MPI_Request posted;
    MPI_Status status;
    MPI_Irecv(in, room, taken, from, tag, MPI_COMM_WORLD, &posted);
    let_go(taken);
    MPI_Barrier(MPI_COMM_WORLD);
    request = begin_send(sends, out, sent_count, sent, tag);
    end_send(sends, &request);
    MPI_Wait(&posted, &status);
    check_status(&status, from, tag, content);
    ++received;
  } else if (rank % 2 == 0) {
    request = begin_send(sends, out, sent_count, sent, tag);
    receive(receives, in, content, room, taken, tag);
    end_send(sends, &request);
  } else {
    receive(receives, in, content, room, taken, tag);
    request = begin_send(sends, out, sent_count, sent, tag);
    end_send(sends, &request);
  }
}

/* From a quarter of the largest cache on content is copied past the caches: content around the size from which it is copied
 * past the caches; `most` where memory is short. */
static void past_the_caches(long most) {
  long largest = 0;
  for (int index = 0; index < 8; ++index) {
    char name[80];
    snprintf(name, sizeof name, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
    FILE* file = fopen(name, "r");
    long kib = 0;
    if (file != NULL && fscanf(file, "%ldK", &kib) == 1 && kib << 10 > largest) {
      largest = kib << 10;
    }
    if (file != NULL) {
      fclose(file);
    }
  }
  const long least = 4 << 20, part = largest / 4;
  const int from_on = (int)(largest == 0 ? 8 << 20 : part < least ? least : part > most ? most : part);
  unsigned char *out = malloc((size_t)from_on + 1), *in = malloc((size_t)from_on + 2);
  for (int count = from_on - 1; count <= from_on + 1; ++count) {
    fill(out, (size_t)count, (unsigned)(rank + count));
    in[count] = 0x5a;
    MPI_Request request;
    MPI_Irecv(in, count, MPI_BYTE, from, 3, MPI_COMM_WORLD, &request);
    MPI_Send(out, count, MPI_BYTE, to, 3, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(same(in, (size_t)count, (unsigned)(from + count)) && in[count] == 0x5a);
    ++received;
  }
  free(out);
  free(in);
}

static void calls(unsigned stride) {
  const int mib = 1 << 20;
  const int sizes[] = {0,     1,      8,      39,     40,     41,      127,   128,     129,         511,
                       512,   513,    4096,   8167,   8168,   8169,    16383, 16384,   16385,       65535,
                       65536, 131073, 262143, 262144, 262145, mib - 1, mib,   mib + 1, 3 * mib + 17};
  const int most = 4 << 20;
  unsigned char *large_out = malloc(most), *large_in = malloc(most), *small_out = malloc(512 << 10),
                *small_in = malloc(512 << 10);
  unsigned char* attached = malloc(16 << 20);
  MPI_Buffer_attach(attached, 16 << 20);
  unsigned seed = 0;
  for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
    for (int sends = 0; sends < SENDS; ++sends) {
      for (int receives = 0; receives < RECEIVES; ++receives) {
        if (++seed % stride != 0) {
          continue;
        }
        const int count = sizes[s], tag = (int)(seed % 30000);
        const int small = count < (512 << 10) && seed % 3 == 0;
        unsigned char *out = small ? small_out : large_out, *in = small ? small_in : large_in;
        const int room = count + (seed % 2 == 0 ? 0 : 1000);
        fill(out, (size_t)count, seed + (unsigned)rank);
        memset(in, 0x5a, (size_t)room);
        if (received % 16 == 0) {
          press();
        }
        transfer(sends, receives, out, count, MPI_BYTE, in, room, MPI_BYTE, count, tag);
        CHECK(same(in, (size_t)count, seed + (unsigned)from));
        CHECK(room == count || in[count] == 0x5a);
        CHECK(same(out, (size_t)count, seed + (unsigned)rank));
      }
    }
    MPI_Status status;
    const int count = sizes[s];
    fill(large_out, (size_t)count, 7 + (unsigned)rank);
    MPI_Sendrecv(large_out, count, MPI_BYTE, to, 1, large_in, most, MPI_BYTE, from, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    check_status(&status, from, 1, count);
    CHECK(same(large_in, (size_t)count, 7 + (unsigned)from));
    MPI_Sendrecv_replace(large_in, count, MPI_BYTE, to, 2, from, 2, MPI_COMM_WORLD, &status);
    check_status(&status, from, 2, count);
    CHECK(same(large_in, (size_t)count, 7 + (unsigned)((from + from - rank + 2 * ranks) % ranks)));
    received += 2;
  }
  past_the_caches(stride == 1 ? 16 << 20 : 8 << 20);
  int size;
  void* detached;
  MPI_Buffer_detach(&detached, &size);
}
