/* Collectives of long content while memory is short: what each rank works on beside is larger than its part of the budget, and
   changed between them.
   usage: exchanged_in_short_memory allgather|alltoall MIB_BESIDE KIB_EACH ROUNDS; KIB_EACH is what goes to one receiver. */
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "report_wrong.h"

static uint64_t value(int from, int to, int round, uint64_t at) {
  return (uint64_t)from * 1000003 + (uint64_t)to * 10007 + (uint64_t)round * 101 + at;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 5) {
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const int to_all = strcmp(argv[1], "allgather") == 0;
  const uint64_t beside = strtoull(argv[2], NULL, 10) << 17, each = strtoull(argv[3], NULL, 10) << 7;
  const int rounds = atoi(argv[4]), sent = to_all ? 1 : size;
  uint64_t* work = calloc(beside, 8);
  uint64_t* mine = malloc(each * 8 * (uint64_t)sent);
  uint64_t* all = malloc(each * 8 * (uint64_t)size);
  uint64_t wrong = 0;
  for (int round = 0; round < rounds; ++round) {
    for (uint64_t i = 0; i < beside; ++i) {
      wrong += work[i] != (round == 0 ? 0 : i + (uint64_t)round);
      work[i] = i + (uint64_t)round + 1;
    }
    for (int to = 0; to < sent; ++to) {
      for (uint64_t i = 0; i < each; ++i) {
        mine[(uint64_t)to * each + i] = value(rank, to_all ? 0 : to, round, i);
      }
    }
    if (to_all) {
      MPI_Allgather(mine, (int)each, MPI_UINT64_T, all, (int)each, MPI_UINT64_T, MPI_COMM_WORLD);
    } else {
      MPI_Alltoall(mine, (int)each, MPI_UINT64_T, all, (int)each, MPI_UINT64_T, MPI_COMM_WORLD);
    }
    for (int from = 0; from < size; ++from) {
      for (uint64_t i = 0; i < each; ++i) {
        wrong += all[(uint64_t)from * each + i] != value(from, to_all ? 0 : rank, round, i);
      }
    }
  }
  free(work);
  free(mine);
  free(all);
  return report_wrong(wrong);
}
