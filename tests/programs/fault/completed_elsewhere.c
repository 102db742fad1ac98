/* Each rank receives from the one before it, and a library of the program's waits for that. Prints "ok". */
#include <mpi.h>
#include <stdio.h>

void complete(MPI_Request* request);

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks, got = -1, wrong = 0, all_wrong = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int round = 0; round < 100; ++round) {
    const int before = (rank + ranks - 1) % ranks, given = rank * 1000 + round;
    MPI_Request request;
    MPI_Irecv(&got, 1, MPI_INT, before, round, MPI_COMM_WORLD, &request);
    MPI_Send(&given, 1, MPI_INT, (rank + 1) % ranks, round, MPI_COMM_WORLD);
    complete(&request);
    wrong += got != before * 1000 + round;
  }
  MPI_Reduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("%s\n", all_wrong == 0 ? "ok" : "wrong");
  }
  MPI_Finalize();
  return wrong != 0;
}
