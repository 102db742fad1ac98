/* Collectives in which all but one rank only send, many in a row, while the one comes late. Prints "ok".
   usage: one_way CALLS */
#include <mpi.h>
#include <unistd.h>

#include "pressure.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int calls = argc > 1 ? atoi(argv[1]) : 0;
  long *all = calloc((size_t)ranks, sizeof *all), mine, sum;
  for (int kind = 0; kind < 2; ++kind) {
    const int root = kind % ranks, last = ranks - 1;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == root) {
      usleep(100000);
    }
    for (int call = 0; call < calls; ++call) {
      mine = call + rank;
      if (kind == 0) {
        MPI_Reduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, root, MPI_COMM_WORLD);
        CHECK(rank != root || sum == (long)ranks * call + (long)ranks * (ranks - 1) / 2);
      } else {
        MPI_Gather(&mine, 1, MPI_LONG, all, 1, MPI_LONG, root, MPI_COMM_WORLD);
        CHECK(rank != root || (all[0] == call && all[last] == call + last));
      }
    }
  }
  free(all);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    printf("ok\n");
  }
  MPI_Finalize();
  return 0;
}
