/* Rank 0 sweeps its array, or leaves it alone, without calling MPI until the others, who sweep theirs a few times, have told a
   file that they are done. Rank 0 makes FILE.begun when it begins. Prints "wrong 0". usage: long_turn MIB FILE sweeping|still
   [SWEEPS OF THE OTHERS] */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report_wrong.h"

static uint64_t sweep(uint64_t* array, uint64_t words, uint64_t version) {
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < words; ++i) {
    wrong += array[i]++ != i * 31 + version;
  }
  return wrong;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const uint64_t words = argc > 3 ? strtoull(argv[1], NULL, 10) << 17 : 0;
  uint64_t *array = malloc(words * 8), wrong = 0, version = 0;
  for (uint64_t i = 0; i < words; ++i) {
    array[i] = i * 31;
  }
  for (int turn = 0; turn < 3; ++turn) {
    MPI_Barrier(MPI_COMM_WORLD);
    wrong += sweep(array, words, version++);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  /* Rank 0 has its turn first. */
  int begins = 0;
  if (rank == 0) {
    for (int other = 1; other < size; ++other) {
      MPI_Send(&begins, 1, MPI_INT, other, 1, MPI_COMM_WORLD);
    }
  } else {
    MPI_Recv(&begins, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  if (rank == 0) {
    char begun[4096];
    (void)snprintf(begun, sizeof begun, "%s.begun", argv[2]);
    fclose(fopen(begun, "w"));
    const int sweeps = strcmp(argv[3], "still") != 0;
    while (access(argv[2], F_OK) != 0) {
      wrong += sweeps ? sweep(array, words, version++) : 0;
    }
  } else {
    const int sweeps = argc > 4 ? atoi(argv[4]) : 3;
    for (int each = 0; each < sweeps; ++each) {
      wrong += sweep(array, words, version++);
    }
    int token = 0;
    if (rank > 1) {
      MPI_Recv(&token, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (rank + 1 < size) {
      MPI_Send(&token, 1, MPI_INT, rank + 1, 0, MPI_COMM_WORLD);
    } else {
      fclose(fopen(argv[2], "w"));
    }
  }
  return report_wrong(wrong);
}
