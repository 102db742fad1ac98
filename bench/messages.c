/* Ping-pong between neighbours and collectives on all ranks; prints microseconds an operation. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

static double ping_pong(char* buffer, int bytes, int rounds) {
  const int peer = rank ^ 1;
  MPI_Barrier(MPI_COMM_WORLD);
  const double started = MPI_Wtime();
  for (int i = 0; i < rounds && peer < ranks; ++i) {
    if (rank % 2 == 0) {
      MPI_Send(buffer, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
      MPI_Recv(buffer, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Recv(buffer, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(buffer, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
    }
  }
  return (MPI_Wtime() - started) / rounds / 2 * 1e6;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  char* buffer = malloc(4 << 20);
  memset(buffer, 1, 4 << 20);
  const int crowded = ranks > 2;
  const struct {
    const char* name;
    int bytes, rounds;
  } sizes[] = {{"ping-pong 8 B", 8, 20000},
               {"ping-pong 4 KiB", 4096, 10000},
               {"ping-pong 64 KiB", 65536, 4000},
               {"ping-pong 1 MiB", 1 << 20, 400},
               {"ping-pong 4 MiB", 4 << 20, 100}};
  for (int i = 0; i < (crowded ? 1 : 5); ++i) {
    ping_pong(buffer, sizes[i].bytes, 20);
    const double us = ping_pong(buffer, sizes[i].bytes, crowded ? 200 : sizes[i].rounds);
    if (rank == 0) {
      printf("%s: %.3f\n", sizes[i].name, us);
    }
  }
  double value = rank, sum;
  const int rounds = crowded ? 200 : 20000;
  MPI_Barrier(MPI_COMM_WORLD);
  const double started = MPI_Wtime();
  for (int i = 0; i < rounds; ++i) {
    MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  }
  if (rank == 0) {
    printf("allreduce 8 B: %.3f\n", (MPI_Wtime() - started) / rounds * 1e6);
  }
  free(buffer);
  MPI_Finalize();
  return 0;
}
