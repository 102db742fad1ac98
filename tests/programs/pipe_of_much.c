/* Two ranks, each of which allocates so many MiB in a pipe to the other; rank 0 prints the error number. usage: pipe_of_much
 * MIB */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "headroom/rpipe.h"

int main(int argc, char** argv) {
  int self;
  rpipe_t pipe;
  raddr_t buffer;
  MPI_Init(&argc, &argv);
  const size_t bytes = (size_t)atoi(argv[1]) << 20;
  struct rpipe_options options = {.size = sizeof options, .heap_bytes = bytes};
  if (rpipe_init(&self, NULL) != 0 || rpipe_open(&pipe, 1 - self, RPIPE_BOTH, &options) != 0) {
    return 1;
  }
  char* const own = malloc((size_t)8 << 20); /* so that there is something to be kept in memory for */
  memset(own, 1, (size_t)8 << 20);
  const int error = rpipe_alloc(pipe, bytes, &buffer, RPIPE_FOREVER);
  if (self == 0) {
    printf("%d\n", error);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  rpipe_finalize(RPIPE_FOREVER);
  MPI_Finalize();
  return 0;
}
