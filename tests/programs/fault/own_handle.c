/* MPI's functions taken from the library's own handle, as ctypes and Julia do: nothing of Headroom's sees the calls. Two ranks
   exchange memory that is mostly on storage. Prints "right" for each. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  void* library = dlopen("libmpi.so.12", RTLD_NOW | RTLD_GLOBAL);
  if (library == NULL) {
    library = dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
  }
  int (*init)(int*, char***) = dlsym(library, "MPI_Init");
  int (*get_rank)(MPI_Comm, int*) = dlsym(library, "MPI_Comm_rank");
  int (*finalize)(void) = dlsym(library, "MPI_Finalize");
  int (*exchange)(const void*, int, MPI_Datatype, int, int, void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status*) =
      dlsym(library, "MPI_Sendrecv");
  const size_t bytes = 48 << 20;
  char *mine = malloc(bytes), *others = malloc(bytes);
  init(&argc, &argv);
  int rank = 0;
  get_rank(MPI_COMM_WORLD, &rank);
  memset(mine, rank + 1, bytes);
  memset(others, 9, bytes);
  size_t wrong = 0;
  for (int round = 0; round < 3; ++round) {
    exchange(mine, (int)bytes, MPI_CHAR, 1 - rank, 0, others, (int)bytes, MPI_CHAR, 1 - rank, 0, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    for (size_t at = 0; at < bytes; at += 1024) {
      wrong += others[at] != 2 - rank;
      others[at] = 9;
    }
  }
  printf("%s\n", wrong == 0 ? "right" : "wrong");
  finalize();
  return wrong != 0;
}
