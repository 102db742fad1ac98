/* The last rank ends without freeing what it has filled; the first goes on after MPI_Finalize and sees the node's shared memory
   shrink by that. Prints "ok". usage: left_memory MIB */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long shared_mib(void) {
  char line[256];
  long kib = -1;
  FILE* file = fopen("/proc/meminfo", "r");
  while (kib < 0 && fgets(line, sizeof line, file) != NULL) {
    (void)sscanf(line, "Shmem: %ld kB", &kib);
  }
  fclose(file);
  return kib / 1024;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const long mib = argc > 1 ? atol(argv[1]) : 0;
  if (rank == size - 1) {
    volatile char* filled = malloc((size_t)mib << 20);
    memset((char*)filled, 1, (size_t)mib << 20);
  }
  int pid = getpid();
  MPI_Bcast(&pid, 1, MPI_INT, size - 1, MPI_COMM_WORLD);
  const long before = shared_mib();
  MPI_Finalize();
  if (rank == 0) {
    long now = before;
    for (int look = 0; look < 1000 && now > before - mib / 2; ++look) {
      usleep(10000);
      now = shared_mib();
    }
    printf("%s\n", kill(pid, 0) != 0 && now <= before - mib / 2 ? "ok" : "the memory is still there");
  }
  return 0;
}
