/* Collectives in which some ranks only send, many in a row, while those that receive come late: from several, or from one.
   Prints "ok". usage: one_way CALLS several|one */
#include <mpi.h>
#include <unistd.h>

#include "pressure.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int calls = argc > 2 ? atoi(argv[1]) : 0, several = argc > 2 && argv[2][0] == 's';
  long *all = calloc((size_t)ranks, sizeof *all), mine, sum, got;
  for (int kind = several ? 0 : 2; kind < (several ? 2 : 5); ++kind) {
    const int root = kind % ranks, last = ranks - 1;
    MPI_Barrier(MPI_COMM_WORLD);
    if (kind < 2 ? rank == root : kind == 4 ? rank == last : rank != root) {
      usleep(100000);
    }
    for (int call = 0; call < calls; ++call) {
      mine = call + rank;
      if (kind == 0) {
        MPI_Reduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, root, MPI_COMM_WORLD);
        CHECK(rank != root || sum == (long)ranks * call + (long)ranks * (ranks - 1) / 2);
      } else if (kind == 1) {
        MPI_Gather(&mine, 1, MPI_LONG, all, 1, MPI_LONG, root, MPI_COMM_WORLD);
        CHECK(rank != root || (all[0] == call && all[last] == call + last));
      } else if (kind == 2) {
        got = mine;
        MPI_Bcast(&got, 1, MPI_LONG, root, MPI_COMM_WORLD);
        CHECK(got == call + root);
      } else if (kind == 3) {
        for (int to = 0; to < ranks; ++to) {
          all[to] = call + 2 * to;
        }
        MPI_Scatter(all, 1, MPI_LONG, &got, 1, MPI_LONG, root, MPI_COMM_WORLD);
        CHECK(got == call + 2 * rank);
      } else {
        MPI_Scan(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        CHECK(sum == (long)(rank + 1) * call + (long)rank * (rank + 1) / 2);
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
