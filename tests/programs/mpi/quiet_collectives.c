/* Ranks that make collective calls of one kind in batches, between each of which each rank calls sched_getparam() for a
   process that is not there: marks for who looks at system calls. The buffers are allocated large, as those of programs are.
   Prints "right 1". usage: quiet_collectives bcast|reduce|allreduce|allgather|alltoall INTEGERS BATCHES CALLS */
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMost = 1 << 18 };

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 5) {
    return 2;
  }
  const char* kind = argv[1];
  const int count = atoi(argv[2]), batches = atoi(argv[3]), calls = atoi(argv[4]);
  int rank, ranks, right = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int* const from = malloc(2 * kMost * sizeof(int));
  int* const to = from + kMost;
  memset(from, 0, 2 * kMost * sizeof(int));
  for (int batch = 0; batch < batches; ++batch) {
    for (int call = 0; call < calls; ++call) {
      int wanted = call + ranks - 1; /* the last of what comes */
      for (int part = 0; part < ranks; ++part) {
        from[(part + 1) * count - 1] = call + rank;
      }
      if (strcmp(kind, "bcast") == 0) {
        to[count - 1] = call;
        MPI_Bcast(to, count, MPI_INT, call % ranks, MPI_COMM_WORLD);
        wanted = call;
      } else if (strcmp(kind, "reduce") == 0) {
        MPI_Reduce(from, to, count, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD);
        wanted = rank == 0 ? wanted : to[count - 1];
      } else if (strcmp(kind, "allreduce") == 0) {
        MPI_Allreduce(from, to, count, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
      } else if (strcmp(kind, "allgather") == 0) {
        MPI_Allgather(from, count, MPI_INT, to, count, MPI_INT, MPI_COMM_WORLD);
      } else {
        MPI_Alltoall(from, count, MPI_INT, to, count, MPI_INT, MPI_COMM_WORLD);
      }
      const int parts = strncmp(kind, "all", 3) == 0 && strcmp(kind, "allreduce") != 0 ? ranks : 1;
      right &= to[parts * count - 1] == wanted;
    }
    struct sched_param nothing;
    (void)sched_getparam(0x7ffffffe, &nothing);
  }
  int all = 0;
  MPI_Reduce(&right, &all, 1, MPI_INT, MPI_MIN, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("right %d\n", all);
  }
  free(from);
  MPI_Finalize();
  return 0;
}
