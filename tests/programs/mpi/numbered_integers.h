/* Parts of integers that say where they come from and where they go: what the programs about collectives send, and look at. A
 * part's elements lie `step` integers apart; what lies between stays -1. */
#pragma once
#include <mpi.h>
#include <stdio.h>

enum { GAP = 3 };
static int rank, size;
static const char* doing; /* the call that is looked at */

static int value(int from, int to, int i) { return from * 1000003 + to * 10007 + i * 7; }

static void fail(int count, int at, long long got, long long expected) {
  fprintf(stderr, "rank %d of %d: %s of %d integers: at %d got %lld, not %lld\n", rank, size, doing, count, at, got, expected);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void put(int* part, int from, int to, int count, int step) {
  for (int i = 0; i < count; ++i) {
    part[i * step] = value(from, to, i);
  }
}

static void check(const int* part, int from, int to, int count, int step) {
  for (int i = 0; i < count; ++i) {
    if (part[i * step] != value(from, to, i)) {
      fail(count, i, part[i * step], value(from, to, i));
    }
    for (int gap = 1; gap < step; ++gap) {
      if (part[i * step + gap] != -1) {
        fail(count, i, part[i * step + gap], -1);
      }
    }
  }
}
