/* Two ranks exchange arrays while memory is enough, so that each maps the other's, and again when it is short: MIB PRESSURE.
   Each second MiB has no byte that is zero. Prints "wrong N". */
#include <mpi.h>
#include <stdint.h>

#include "pressure.h"
#include "report_wrong.h"

static unsigned char value(size_t at, int rank, int round) {
  const unsigned char byte = (unsigned char)(at * 31 + (at >> 12) + (size_t)(rank * 3 + round * 5));
  return (at >> 20) % 2 != 0 && byte == 0 ? 1 : byte;
}

static uint64_t exchange(unsigned char* mine, unsigned char* theirs, size_t size, int rank, int round) {
  uint64_t wrong = 0;
  for (size_t at = 0; at < size; ++at) {
    mine[at] = value(at, rank, round);
  }
  MPI_Sendrecv(mine, (int)size, MPI_BYTE, 1 - rank, 0, theirs, (int)size, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  for (size_t at = 0; at < size; ++at) {
    wrong += theirs[at] != value(at, 1 - rank, round);
    wrong += mine[at] != value(at, rank, round);
  }
  return wrong;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  CHECK(argc == 3);
  const size_t size = (size_t)atoi(argv[1]) << 20;
  unsigned char *mine = malloc(size), *theirs = malloc(size);
  uint64_t wrong = exchange(mine, theirs, size, rank, 0);
  MPI_Barrier(MPI_COMM_WORLD);
  bytes = (size_t)atoi(argv[2]) << 20;
  pressure = malloc(bytes);
  press();
  for (size_t at = 0; at < size; ++at) {
    wrong += mine[at] != value(at, rank, 0);
    wrong += theirs[at] != value(at, 1 - rank, 0);
  }
  for (int round = 1; round < 4; ++round) {
    wrong += exchange(mine, theirs, size, rank, round);
    press();
  }
  return report_wrong(wrong);
}
