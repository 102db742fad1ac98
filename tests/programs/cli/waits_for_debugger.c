/* Two ranks that have more memory than fits. Rank 0 has posted two receives that nobody answers, and was sent a message that it
   does not ask for. Prints "ready" then, and waits for ever. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, value = 5, found = 0;
  MPI_Request requests[2];
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  char* memory = malloc((size_t)90 << 20);
  memset(memory, 1, (size_t)90 << 20);
  if (rank == 0) {
    MPI_Irecv(&value, 1, MPI_INT, 1, 7, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &requests[1]);
    while (!found) {
      MPI_Iprobe(1, 5, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    }
    puts("ready");
    fflush(stdout);
  } else {
    MPI_Send(&value, 1, MPI_INT, 0, 5, MPI_COMM_WORLD);
  }
  for (;;) {
    pause();
  }
}
