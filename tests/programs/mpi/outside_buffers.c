/* Messages between stacks, small allocations and large ones, each way, with datatypes of long and of short runs and without.
   Every rank sends to the next one. Prints "ok", how many messages came, and how many of them did not lie in large memory and
   are too long for a record. usage: outside_buffers PRESSURE_MIB ROUNDS */
#define _DEFAULT_SOURCE
#include <mpi.h>
#include <unistd.h>

#include "pressure.h"

enum { MOST = 300 << 10, RUNS = 3, KINDS = 3 };
static int rank, ranks;
static long received, outside;

/* Bytes and gaps of the datatypes: none, runs of 8 KiB, runs of 64 bytes. */
static const int kRun[RUNS] = {0, 8192, 64};

static MPI_Datatype make_type(int run, int count) {
  MPI_Datatype made;
  if (run == 0) {
    MPI_Type_contiguous(count, MPI_BYTE, &made);
  } else {
    MPI_Type_vector(count / run, run, 2 * run, MPI_BYTE, &made);
  }
  MPI_Type_commit(&made);
  return made;
}

/* Where byte `i` of the content lies. */
static size_t place(int run, size_t i) { return run == 0 ? i : i / (size_t)run * 2 * (size_t)run + i % (size_t)run; }

static unsigned char content(size_t i, unsigned seed) { return (unsigned char)(i * 31 + (i >> 11) + seed); }

static void exchange(unsigned char* out, int out_run, unsigned char* in, int in_run, int count, unsigned seed) {
  const size_t room = 2 * MOST;
  memset(in, 0x5a, room);
  for (size_t i = 0; i < (size_t)count; ++i) {
    out[place(out_run, i)] = content(i, seed + (unsigned)rank);
  }
  MPI_Datatype sent = make_type(out_run, count), wanted = make_type(in_run, count);
  MPI_Status status;
  const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
  MPI_Sendrecv(out, 1, sent, to, 3, in, 1, wanted, from, 3, MPI_COMM_WORLD, &status);
  int got = 0;
  MPI_Get_count(&status, wanted, &got);
  CHECK(got == 1);
  for (size_t i = 0; i < (size_t)count; ++i) {
    CHECK(in[place(in_run, i)] == content(i, seed + (unsigned)from));
  }
  size_t touched = 0;
  for (size_t i = 0; i < room; ++i) {
    touched += in[i] != 0x5a;
  }
  CHECK(touched <= (size_t)count); /* nothing between the runs */
  MPI_Type_free(&sent);
  MPI_Type_free(&wanted);
  ++received;
}

static void rounds(int number) {
  unsigned char out_stack[2 * MOST], in_stack[2 * MOST];
  unsigned char* outs[KINDS] = {out_stack, sbrk(2 * MOST), malloc(4 << 20)};
  unsigned char* ins[KINDS] = {in_stack, sbrk(2 * MOST), malloc(4 << 20)};
  const int counts[] = {64, 8128, 8192, 16384, 24576, 65536, 131072, 294912};
  for (int round = 0; round < number; ++round) {
    for (int one = 0; one < KINDS; ++one) {
      for (int other = 0; other < KINDS; ++other) {
        for (unsigned i = 0; i < sizeof counts / sizeof *counts; ++i) {
          const int out_run = kRun[(unsigned)(round + one) % RUNS], in_run = kRun[(unsigned)(round + other + (int)i) % RUNS];
          if (counts[i] % 8192 != 0 && out_run + in_run > 0) {
            continue;
          }
          if (received % 16 == 0) {
            press();
          }
          exchange(outs[one], out_run, ins[other], in_run, counts[i], (unsigned)round * 7 + i);
          outside += one != 2 && counts[i] > 8192 - 24;
        }
      }
    }
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  CHECK(argc > 2);
  bytes = (size_t)atoi(argv[1]) << 20;
  pressure = malloc(bytes + 1);
  press();
  rounds(atoi(argv[2]));
  long sums[2] = {0, 0}, mine[2] = {received, outside};
  MPI_Reduce(mine, sums, 2, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("ok %ld %ld\n", sums[0], sums[1]);
  }
  MPI_Finalize();
  return 0;
}
