/* A program whose static data holds what belongs to libraries (stderr, environ, MPI's handles come here by copy relocation)
   beside a large array. Built without position independence and stripped. Prints "ok". usage: copies MIB */
#include <mpi.h>
#include <unistd.h>

#include "pressure.h"

extern char** environ;
static unsigned char array[16 << 20];

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  bytes = (size_t)atoi(argv[1]) << 20;
  pressure = malloc(bytes);
  for (unsigned round = 0; round < 3; ++round) {
    fill(array, sizeof array, round);
    press();
    fprintf(stderr, "round %u%s\n", round, environ != NULL && environ[0] != NULL ? "" : " without an environment");
    int sum, one = 1, ranks;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == ranks);
    CHECK(same(array, sizeof array, round));
  }
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    printf("ok\n");
  }
  MPI_Finalize();
  return 0;
}
