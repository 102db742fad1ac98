/* Requests of every kind in one array, ended by each function that can: direct messages, persistent ones, nonblocking
   collectives, the MPI library's own (on a communicator between groups, generalised, on files) and none. Also requests that
   are looked at, freed or cancelled while they are active, messages that are too long for their receives, messages to oneself,
   the calls with large counts, and receives whose ranks are in calls of the library, or poll it, when the message comes. Prints
   "ok", how many messages this job sent inside the node, and how many on communicators of the library.
   usage: completion PRESSURE_MIB ROUNDS FOLDER [DISTANCE] (to the rank that is sent to) */
#include <unistd.h>

#include "completion_arrays.h"
#include "completion_edges.h"
#include "completion_job.h"
#include "completion_large_counts.h"
#include "completion_looks.h"
#include "completion_polls.h"

/* Sends that only end when they are received, to ranks that have asked for them and then went into another call. */
static void progress(void) {
  const int count = 1 << 20;
  unsigned char *out = malloc((size_t)count), *in = malloc((size_t)count);
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
        double _Complex factor = 1, product; /* whose products are the library's */
        MPI_Allreduce(&factor, &product, 1, MPI_C_DOUBLE_COMPLEX, MPI_PROD, MPI_COMM_WORLD);
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

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  distance = argc > 4 ? atoi(argv[4]) : 1;
  to = (rank + distance) % ranks;
  from = (rank + ranks - distance) % ranks;
  bytes = (size_t)atoi(argv[1]) << 20;
  pressure = malloc(bytes + 1);
  folder = argv[3];
  press();
  make_between();
  arrays(atoi(argv[2]));
  looked_at();
  freed();
  cancelled();
  truncated();
  to_oneself();
  progress();
  polled();
  with_large_counts();
  MPI_Comm_free(&between);
  long mine[2] = {sent, sent_between}, all[2];
  MPI_Reduce(mine, all, 2, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("ok %ld %ld\n", all[0], all[1]);
  }
  MPI_Finalize();
  return 0;
}
