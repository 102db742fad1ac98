/* What the parts of mpi_promises.c share: who is who, and what is wrong. */
#pragma once

#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static int rank, ranks;
static const char* wrong;

static void must(int holds, const char* what) {
  if (!holds && wrong == NULL) {
    wrong = what;
  }
}

static long sum_on(MPI_Comm comm, long own) {
  long sum = 0;
  MPI_Allreduce(&own, &sum, 1, MPI_LONG, MPI_SUM, comm);
  return sum;
}
