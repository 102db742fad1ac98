/* Rank 0 gets a message that is too long for its receive, on a communicator whose errors end the job; those of the world are
   returned. Prints "came back" where it should not come. usage: truncated_abort fatal|abort BYTES */
#include <mpi.h>

#include "pressure.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(comm, strcmp(argv[1], "abort") == 0 ? MPI_ERRORS_ABORT : MPI_ERRORS_ARE_FATAL);
  const int count = atoi(argv[2]);
  char* buffer = calloc((size_t)count, 1);
  if (rank == 1) {
    MPI_Send(buffer, count, MPI_BYTE, 0, 0, comm);
  } else if (rank == 0) {
    CHECK(MPI_Recv(buffer, count / 2, MPI_BYTE, 1, 0, comm, MPI_STATUS_IGNORE) != MPI_SUCCESS);
    printf("came back\n");
    fflush(stdout);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
