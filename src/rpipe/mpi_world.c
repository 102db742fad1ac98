/* MPI's world as the ranks that share pipes; compiled once for each binary interface, and opened by find_mpi.cc. */
#include <errno.h>
#include <mpi.h>

#include "headroom/rpipe.h"

static int allgather(void* context, const void* mine, void* all, size_t bytes) {
  MPI_Comm ours;
  (void)context;
  /* A communicator of its own: the program's calls on the world may be on their way in another order. */
  if (MPI_Comm_dup(MPI_COMM_WORLD, &ours) != MPI_SUCCESS) {
    return -EPROTO;
  }
  const int result = MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, ours);
  MPI_Comm_free(&ours);
  return result == MPI_SUCCESS ? 0 : -EPROTO;
}

__attribute__((visibility("default"))) int rpipe_join_mpi_world(struct rpipe_bootstrap* bootstrap) {
  int begun = 0;
  int ended = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  if (!begun || ended) {
    return -ENOTSUP;
  }
  bootstrap->size = sizeof *bootstrap;
  MPI_Comm_rank(MPI_COMM_WORLD, &bootstrap->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &bootstrap->ranks);
  bootstrap->allgather = allgather;
  return 0;
}
