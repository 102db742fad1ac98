/* The last rank comes late to a message, to a collective and to a call that is left to the MPI library, MS milliseconds to
   each; the others wait for it there. Prints "ok". usage: late_rank MS */
#include <mpi.h>
#include <unistd.h>

#include "pressure.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks, number = 7, sum = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int last = ranks - 1;
  const useconds_t late = rank == last ? 1000 * (useconds_t)atoi(argv[1]) : 0;
  MPI_Barrier(MPI_COMM_WORLD);
  usleep(late);
  for (int to = 0; to < last && rank == last; ++to) {
    MPI_Send(&number, 1, MPI_INT, to, 0, MPI_COMM_WORLD);
  }
  if (rank < last) {
    MPI_Recv(&number, 1, MPI_INT, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  usleep(late);
  MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CHECK(sum == 7 * ranks);
  usleep(late);
  MPI_Comm other;
  MPI_Comm_dup(MPI_COMM_WORLD, &other);
  MPI_Comm_free(&other);
  if (rank == 0) {
    printf("ok\n");
  }
  MPI_Finalize();
  return 0;
}
