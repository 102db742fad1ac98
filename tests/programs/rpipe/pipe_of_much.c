/* Two ranks, each of which allocates so many MiB in a pipe to the other; rank 0 prints the error number. "by-mpi": rank 1
 * writes so much to rank 0, which prints the error number of its reading it. usage: pipe_of_much MIB [by-mpi] */
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
  const int by_mpi = argc > 2 && strcmp(argv[2], "by-mpi") == 0;
  struct rpipe_options options = {.size = sizeof options, .heap_bytes = bytes, .backend = by_mpi ? RPIPE_MPI : RPIPE_ANY};
  if (rpipe_init(&self, NULL) != 0 || rpipe_open(&pipe, 1 - self, RPIPE_BOTH, &options) != 0) {
    return 1;
  }
  char* const own = malloc((size_t)8 << 20); /* so that there is something to be kept in memory for */
  memset(own, 1, (size_t)8 << 20);
  int error = by_mpi && self == 0 ? 0 : rpipe_alloc(pipe, bytes, &buffer, RPIPE_FOREVER);
  if (by_mpi && self == 1 && error == 0) {
    memset(rpipe_at(buffer), 3, bytes);
    error = rpipe_write(buffer, RPIPE_ALL, RPIPE_FOREVER);
  }
  if (by_mpi && self == 1 && error != 0) {
    fprintf(stderr, "rank 1: %s\n", rpipe_error(error));
    return 2;
  }
  if (by_mpi && self == 0) {
    size_t got = 0;
    error = rpipe_read(pipe, &buffer, &got, RPIPE_FOREVER);
    const char* const at = error == 0 ? rpipe_at(buffer) : NULL;
    if (error == 0 && (got != bytes || at[0] != 3 || at[bytes - 1] != 3 || rpipe_free(buffer) != 0)) {
      return 3;
    }
    if (error != 0) {
      fprintf(stderr, "rank 0: %s\n", rpipe_reason(pipe));
    }
  }
  if (self == 0) {
    printf("%d\n", error);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  rpipe_finalize(RPIPE_FOREVER);
  MPI_Finalize();
  return 0;
}
