/* Barriers and short sums of ranks that share processors, on communicators that come and go: nobody leaves a barrier before all
   have come, and what one rank has left for the next sum is not taken for what it left for this one. Prints "ok" and how many
   barriers and sums each rank made on communicators of more than two ranks.
   usage: tallies ROUNDS */
#include <mpi.h>

#include "pressure.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks, came = 0;
  long made = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Win window;
  int* shared = NULL;
  MPI_Win_allocate_shared(rank == 0 ? sizeof *shared : 0, sizeof *shared, MPI_INFO_NULL, MPI_COMM_WORLD, &shared, &window);
  MPI_Aint size;
  int unit;
  MPI_Win_shared_query(window, 0, &size, &unit, &shared);
  if (rank == 0) {
    *shared = 0;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  ++made;
  for (int round = 0; round < atoi(argv[1]); ++round) {
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, 0, (rank + round) % ranks, &comm);
    for (int turn = 0; turn < 3; ++turn) {
      came += ranks;
      (void)__atomic_add_fetch(shared, 1, __ATOMIC_RELAXED);
      MPI_Barrier(turn == 1 ? MPI_COMM_WORLD : comm);
      CHECK(__atomic_load_n(shared, __ATOMIC_RELAXED) >= came);
      const long mine[3] = {rank, round * 3 + turn, -rank};
      long got[8] = {0};
      MPI_Allreduce(mine, got, 3, MPI_LONG, MPI_SUM, comm);
      CHECK(got[0] == ranks * (ranks - 1) / 2 && got[1] == (long)ranks * (round * 3 + turn) && got[2] == -got[0]);
      got[0] = rank == round % ranks ? round : -1; /* where it was: the result goes there, too */
      for (int i = 1; i < 8; ++i) {
        got[i] = rank * 8 + i;
      }
      MPI_Allreduce(MPI_IN_PLACE, got, 8, MPI_LONG, MPI_MAX, comm);
      CHECK(got[0] == round && got[7] == (ranks - 1) * 8 + 7);
      made += 3;
    }
    MPI_Comm_free(&comm); /* some ranks may not have seen yet that the last one is over */
  }
  MPI_Win_free(&window);
  if (rank == 0) {
    printf("ok %ld\n", made);
  }
  MPI_Finalize();
  return 0;
}
