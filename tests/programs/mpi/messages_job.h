/* What the parts of messages.c share: who is who, how many messages came, and the check of a status. */
#pragma once

#include <mpi.h>

#include "pressure.h"

static int rank, ranks, to, from;
static long received;

/* Sums up over all ranks how many messages came; rank 0 says it. */
static void report_received(void) {
  long sum = 0;
  MPI_Reduce(&received, &sum, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("ok %ld\n", sum);
  }
}

static void check_status(const MPI_Status* status, int source, int tag, int count) {
  int got = -1;
  MPI_Get_count(status, MPI_BYTE, &got);
  CHECK(status->MPI_SOURCE == source);
  CHECK(status->MPI_TAG == tag);
  CHECK(got == count);
  int cancelled = 1;
  MPI_Test_cancelled(status, &cancelled);
  CHECK(!cancelled);
}
