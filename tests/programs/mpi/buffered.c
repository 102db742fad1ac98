/* Buffered sends do not wait for their receivers, whatever the size and however short memory is: all ranks send to the next one
   and to themselves before anybody receives. And what attaches, flushes and detaches buffers. Prints "ok", the messages that
   this rank's calls sent, and whether the library has MPI 4.1's calls.
   usage: buffered PRESSURE_MIB */
#include <mpi.h>
#include <unistd.h>

#include "pressure.h"

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
#define HAS_BUFFERS_OF_COMMUNICATORS 1
#else
#define HAS_BUFFERS_OF_COMMUNICATORS 0
#endif

enum { BSEND, IBSEND, BSEND_INIT, WAYS, MOST = 3 << 20 };
static const int sizes[] = {0, 8, 5000, 200000, 300000, 2 << 20, MOST};
static const int times[] = {1, 1, 1, 12, 12, 1, 1}; /* many of what may just be copied aside, and of what is longer */
static int rank, ranks;
static long sent;

/* Sends `count` bytes to `to` in each way, each from memory of its own that is reused at once. */
static void send_in_each_way(unsigned char* out, int count, int to, MPI_Comm comm) {
  for (int way = 0; way < WAYS; ++way) {
    MPI_Request request = MPI_REQUEST_NULL;
    fill(out, (size_t)count, (unsigned)(rank * 7 + way));
    if (way == BSEND) {
      MPI_Bsend(out, count, MPI_BYTE, to, way, comm);
    } else if (way == IBSEND) {
      MPI_Ibsend(out, count, MPI_BYTE, to, way, comm, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
      MPI_Bsend_init(out, count, MPI_BYTE, to, way, comm, &request);
      MPI_Start(&request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      MPI_Request_free(&request);
    }
    memset(out, 0xee, (size_t)count);
    ++sent;
  }
}

static void receive_in_each_way(unsigned char* in, int count, int from, MPI_Comm comm) {
  for (int way = 0; way < WAYS; ++way) {
    MPI_Status status;
    int got = -1;
    memset(in, 0, (size_t)count);
    MPI_Recv(in, count, MPI_BYTE, from, way, comm, &status);
    MPI_Get_count(&status, MPI_BYTE, &got);
    CHECK(got == count && same(in, (size_t)count, (unsigned)(from * 7 + way)));
  }
}

static void before_anybody_receives(MPI_Comm comm) {
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); ++i) {
    unsigned char* buffer = malloc((size_t)MOST);
    for (int time = 0; time < times[i]; ++time) {
      send_in_each_way(buffer, sizes[i], next, comm);
    }
    if (i % 2 == 0) {
      send_in_each_way(buffer, sizes[i], rank, comm);
    }
    MPI_Barrier(comm);
    press();
    for (int time = 0; time < times[i]; ++time) {
      receive_in_each_way(buffer, sizes[i], previous, comm);
    }
    if (i % 2 == 0) {
      receive_in_each_way(buffer, sizes[i], rank, comm);
    }
    free(buffer);
  }
}

/* Who sends need not wait here: what was received must be given back all the same. */
static void received_at_once(void) {
  enum { ROUNDS = 60, EACH = 4, BYTES = 300000 };
  unsigned char* buffer = malloc(BYTES);
  for (int round = 0; round < ROUNDS && rank < 2; ++round) {
    for (int each = 0; each < EACH; ++each) {
      if (rank == 0) {
        fill(buffer, BYTES, (unsigned)(round + each));
        MPI_Bsend(buffer, BYTES, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        ++sent;
      } else {
        MPI_Recv(buffer, BYTES, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(same(buffer, BYTES, (unsigned)(round + each)));
      }
    }
    if (rank == 0) {
      usleep(3000); /* so that the answer is there */
      MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Send(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
      ++sent;
    }
  }
  free(buffer);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  bytes = (size_t)atoi(argv[1]) << 20;
  pressure = calloc(1, bytes);
  press();

  const int room = 2 * WAYS * (MOST + MPI_BSEND_OVERHEAD);
  void *attached = malloc((size_t)room), *detached = NULL;
  int size = 0;
  for (int round = 0; round < 2; ++round) {
    MPI_Buffer_attach(attached, room);
    before_anybody_receives(MPI_COMM_WORLD);
    MPI_Buffer_detach(&detached, &size);
    CHECK(detached == attached && size == room);
  }
#if HAS_BUFFERS_OF_COMMUNICATORS
  MPI_Comm comm;
  MPI_Request request;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_attach_buffer(comm, attached, room);
  before_anybody_receives(comm);
  MPI_Comm_flush_buffer(comm);
  MPI_Comm_iflush_buffer(comm, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Comm_detach_buffer(comm, &detached, &size);
  CHECK(detached == attached && size == room);
  MPI_Comm_free(&comm);
  MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0);
  before_anybody_receives(MPI_COMM_WORLD);
  MPI_Buffer_flush();
  MPI_Buffer_iflush(&request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Buffer_detach(&detached, &size);
  CHECK(detached == MPI_BUFFER_AUTOMATIC);
#endif
  free(attached);
  received_at_once();
  long all = 0;
  MPI_Reduce(&sent, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("ok %ld %d\n", all, HAS_BUFFERS_OF_COMMUNICATORS);
  }
  MPI_Finalize();
  return 0;
}
