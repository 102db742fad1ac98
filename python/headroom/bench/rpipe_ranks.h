/* What the benchmarks of pipes have in common: errors that end them, and memory that all ranks have. */
#pragma once

#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "headroom/rpipe.h"

static int self;

static void check(int error, const char* call) {
  if (error != 0) {
    fprintf(stderr, "rank %d: %s: %s\n", self, call, rpipe_error(error));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

/* Zeroed, of all ranks of the world, which call it together. */
static void* shared_memory(size_t size) {
  char name[64] = "/dev/shm/rpipe-bench-XXXXXX";
  int file = -1;
  if (self == 0) {
    file = mkstemp(name);
    if (file < 0 || ftruncate(file, (off_t)size) != 0) {
      fprintf(stderr, "cannot make a file in /dev/shm\n");
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
  MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
  file = self == 0 ? file : open(name, O_RDWR);
  void* const at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  MPI_Barrier(MPI_COMM_WORLD);
  if (self == 0) {
    unlink(name);
  }
  if (at == MAP_FAILED) {
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  close(file);
  return at;
}
