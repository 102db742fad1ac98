/* Rank 0 exchanges short messages with each other rank in turn. Prints "ok" and how many messages were sent.
   usage: round_trips ROUNDS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int rounds = argc > 1 ? atoi(argv[1]) : 0;
  for (int round = 0; round < rounds; ++round) {
    for (int other = 1; other < ranks; ++other) {
      int value = round;
      if (rank == 0) {
        MPI_Send(&value, 1, MPI_INT, other, 1, MPI_COMM_WORLD);
        MPI_Recv(&value, 1, MPI_INT, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      } else if (rank == other) {
        MPI_Recv(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        value += rank;
        MPI_Send(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
      }
      if (rank == 0 && value != round + other) {
        fprintf(stderr, "wrong: %d in round %d from %d\n", value, round, other);
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
    }
  }
  if (rank == 0) {
    printf("ok %d\n", 2 * rounds * (ranks - 1));
  }
  return MPI_Finalize();
}
