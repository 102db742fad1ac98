/* What the parts of completion.c share: who is who, what was sent, and the check of a status. */
#pragma once

#include <mpi.h>

#include "pressure.h"

static int rank, ranks, distance, to, from;
static MPI_Comm between; /* even and odd ranks: the library's */
static int peer_between;
static long sent, sent_between;
static const char* folder;

static void check_status(const MPI_Status* status, int source, int tag, int count) {
  int got = -1, cancelled = 1;
  MPI_Get_count(status, MPI_BYTE, &got);
  MPI_Test_cancelled(status, &cancelled);
  CHECK(status->MPI_SOURCE == source && status->MPI_TAG == tag && got == count && !cancelled);
}

static void make_between(void) {
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank % 2 == 0 ? 1 : 0, 8, &between);
  MPI_Comm_free(&half);
  peer_between = rank / 2;
}
