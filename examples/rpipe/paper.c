/* The program of the paper's slide 36 (Wickramasinghe and Lumsdaine), under its names: one value from rank 0 to rank 1.
 * Two ranks. Compile and link: see docs/user/pipes.md. */
#include <mpi.h>
#include <stdio.h>

#include <headroom/rpipe_paper.h>

#define PIPE_WIDTH 8
#define SEND_VAL 42

int main(int argc, char** argv) {
  int rank, value = 0;
  rpipe_t rp;
  raddr_t addr = 0;
  MPI_Init(&argc, &argv);
  if (rinit(&rank, NULL) != 0 || rpipe(rp, 1 - rank, rank == 0, PIPE_WIDTH, HD_PIPE) != 0) {
    return 1;
  }
  if (rank == 0) {
    addr = rmalloc(rp, sizeof(int));
    int* ptr = rmem(rp, addr);
    *ptr = SEND_VAL;
    rwrite(rp, addr);
  } else {
    rread(rp, addr, sizeof(int));
    int* ptr = rmem(rp, addr);
    value = *ptr;
    rfree(addr);
    printf("rank 1 read %d\n", value);
  }
  rfinalize();
  MPI_Finalize();
  return 0;
}
