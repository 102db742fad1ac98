/* What the parts of completion.c share: who is who, what was sent, and the check of a status. */
#pragma once

#include <mpi.h>

#include "pressure.h"

static int rank, ranks, to, from;
static MPI_Comm between; /* even and odd ranks */
static long sent, sent_between;
static const char* folder;

static void check_status(const MPI_Status* status, int source, int tag, int count) {
  int got = -1, cancelled = 1;
  MPI_Get_count(status, MPI_BYTE, &got);
  MPI_Test_cancelled(status, &cancelled);
  CHECK(status->MPI_SOURCE == source && status->MPI_TAG == tag && got == count && !cancelled);
}
