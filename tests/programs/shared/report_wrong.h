/* The end of a program that counts what is wrong on each rank. */
#pragma once

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>

/* Rank 0 prints "wrong N" for all of them. Returns what main() does: 0 if this rank has none. */
static inline int report_wrong(uint64_t wrong) {
  uint64_t all = 0;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Reduce(&wrong, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("wrong %llu\n", (unsigned long long)all);
  }
  MPI_Finalize();
  return wrong != 0;
}
