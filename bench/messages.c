/* Ping-pong between neighbours and a small reduction on all ranks; prints microseconds an operation. Each is repeated for about
   half a second: with more ranks than cores one time slice of the scheduler says nothing. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;
static char* buffer;

static void ping_pong(int bytes) {
  const int peer = rank ^ 1;
  if (peer >= ranks) {
    return;
  }
  if (rank % 2 == 0) {
    MPI_Send(buffer, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
    MPI_Recv(buffer, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else {
    MPI_Recv(buffer, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(buffer, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
  }
}

static void allreduce(int bytes) {
  double value = rank, sum;
  MPI_Allreduce(&value, &sum, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

/* Seconds that one of `rounds` operations takes, on rank 0's clock. */
static double seconds(void (*operation)(int), int bytes, int rounds) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double started = MPI_Wtime();
  for (int i = 0; i < rounds; ++i) {
    operation(bytes);
  }
  double taken = (MPI_Wtime() - started) / rounds;
  MPI_Bcast(&taken, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  return taken;
}

static void measure(const char* name, void (*operation)(int), int bytes, double share) {
  const double guess = seconds(operation, bytes, 50);
  const double rounds = 0.5 / guess;
  const double taken = seconds(operation, bytes, rounds < 50 ? 50 : rounds > 400000 ? 400000 : (int)rounds);
  if (rank == 0) {
    printf("%s: %.3f\n", name, taken * share * 1e6);
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  buffer = malloc(16 << 20);
  memset(buffer, 1, 16 << 20);
  const struct {
    const char* name;
    int bytes, few_ranks_only;
  } sizes[] = {{"ping-pong 8 B", 8, 0},
               {"ping-pong 256 B", 256, 1},
               {"ping-pong 1 KiB", 1 << 10, 1},
               {"ping-pong 4 KiB", 4 << 10, 0},
               {"ping-pong 16 KiB", 16 << 10, 1},
               {"ping-pong 64 KiB", 64 << 10, 0},
               {"ping-pong 256 KiB", 256 << 10, 1},
               {"ping-pong 1 MiB", 1 << 20, 0},
               {"ping-pong 4 MiB", 4 << 20, 1},
               {"ping-pong 16 MiB", 16 << 20, 1}};
  for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    if (ranks <= 2 || !sizes[i].few_ranks_only) {
      measure(sizes[i].name, ping_pong, sizes[i].bytes, 0.5);
    }
  }
  measure("allreduce 8 B", allreduce, 8, 1);
  free(buffer);
  MPI_Finalize();
  return 0;
}
