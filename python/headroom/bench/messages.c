/* What messages cost: compiled with the MPI that is measured and run with and without Headroom by `headroom bench messages`.
 *
 * Each line is "what <tab> bytes <tab> microseconds an operation": the median of several batches, each repeated for a while,
 * since a single message says nothing on a machine with a scheduler. Arguments: the groups to measure. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCHES = 7, WINDOW = 64, WARM_BYTES = 64 << 20 };
static const double kBatchSeconds = 0.012;
static const size_t kColdBytes = (size_t)192 << 20; /* more than caches hold */

static int rank, ranks, bytes;
static char *out, *in;        /* large enough for everything */
static size_t at, cold_bytes; /* where the next message lies; 0: always at the beginning */
static MPI_Datatype type;
static int count;

static char* next_place(char* base) { return base + at; }
static void move_on(void) {
  if (cold_bytes > 0) {
    at = at + 2 * (size_t)bytes + 4096 < cold_bytes ? (at + (size_t)bytes + 4096) & ~(size_t)4095 : 0;
  }
}

static double processor_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Computing, on the average of the ranks and of the rounds as long as that: half to one and a half times that */
static double work_us = 1000;
static void work(void) {
  static int round = 0;
  const double until = processor_us() + work_us / 2 + work_us * (double)((rank + ++round) % ranks) / (ranks - 1);
  while (processor_us() < until) {
  }
}

/* ---- operations ---- */

static void one_way(void) { /* half a ping-pong with the neighbour */
  const int peer = rank ^ 1;
  if (peer >= ranks) {
    return;
  }
  if (rank % 2 == 0) {
    MPI_Send(next_place(out), count, type, peer, 0, MPI_COMM_WORLD);
    MPI_Recv(next_place(in), count, type, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else {
    MPI_Recv(next_place(in), count, type, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(next_place(out), count, type, peer, 0, MPI_COMM_WORLD);
  }
  move_on();
}

static void both_ways(void) {
  const int peer = rank ^ 1;
  if (peer < ranks) {
    MPI_Sendrecv(out, count, type, peer, 0, in, count, type, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

static void window(void) { /* many at once, then a short answer */
  MPI_Request requests[WINDOW];
  const int peer = rank ^ 1;
  for (int i = 0; i < WINDOW; ++i) {
    if (rank % 2 == 0) {
      MPI_Isend(out + (size_t)i * (size_t)bytes, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[i]);
    } else {
      MPI_Irecv(in + (size_t)i * (size_t)bytes, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[i]);
    }
  }
  MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
  if (rank % 2 == 0) {
    MPI_Recv(in, 1, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else {
    MPI_Send(out, 1, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
  }
}

static void ring(void) {
  MPI_Sendrecv(out, bytes, MPI_BYTE, (rank + 1) % ranks, 0, in, bytes, MPI_BYTE, (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
}

static void halo(void) { /* four neighbours of a grid two ranks wide, then all agree to go on */
  const int peers[4] = {rank ^ 1, (rank + 2) % ranks, (rank + ranks - 2) % ranks, rank ^ 1};
  MPI_Request requests[8];
  for (int i = 0; i < 4; ++i) {
    MPI_Irecv(in + (size_t)i * (size_t)bytes, bytes, MPI_BYTE, peers[i], i == 1 || i == 2 ? 3 - i : i, MPI_COMM_WORLD,
              &requests[i]);
  }
  for (int i = 0; i < 4; ++i) {
    MPI_Isend(out + (size_t)i * (size_t)bytes, bytes, MPI_BYTE, peers[i], i, MPI_COMM_WORLD, &requests[4 + i]);
  }
  MPI_Waitall(8, requests, MPI_STATUSES_IGNORE);
}

static void barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }
static void bcast(void) { MPI_Bcast(out, bytes, MPI_BYTE, 0, MPI_COMM_WORLD); }
static void allgather(void) { MPI_Allgather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD); }
static void alltoall(void) { MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD); }
static void allreduce(void) { MPI_Allreduce(out, in, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }
static void work_and_ring(void) {
  work();
  ring();
}
static void work_and_halo(void) {
  work();
  halo();
}
static void work_and_allreduce(void) {
  work();
  allreduce();
}
static void work_and_alltoall(void) {
  work();
  alltoall();
}
static void reduce(void) { MPI_Reduce(out, in, bytes / 8, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD); }

/* Nonblocking, three at once; and a ring of neighbours (a line where there are only two). */
static MPI_Comm line;
static void three(int (*start)(int which, MPI_Request* request)) {
  MPI_Request requests[3];
  for (int which = 0; which < 3; ++which) {
    start(which, &requests[which]);
  }
  MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
}
static char* third(char* buffer, int which) { return buffer + (size_t)which * (size_t)bytes * (size_t)ranks; }
static int start_bcast(int which, MPI_Request* request) {
  return MPI_Ibcast(third(out, which), bytes, MPI_BYTE, 0, MPI_COMM_WORLD, request);
}
static int start_allgather(int which, MPI_Request* request) {
  return MPI_Iallgather(third(out, which), bytes, MPI_BYTE, third(in, which), bytes, MPI_BYTE, MPI_COMM_WORLD, request);
}
static int start_alltoall(int which, MPI_Request* request) {
  return MPI_Ialltoall(third(out, which), bytes, MPI_BYTE, third(in, which), bytes, MPI_BYTE, MPI_COMM_WORLD, request);
}
static int start_allreduce(int which, MPI_Request* request) {
  return MPI_Iallreduce(third(out, which), third(in, which), bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, request);
}
static void three_bcasts(void) { three(start_bcast); }
static void three_allgathers(void) { three(start_allgather); }
static void three_alltoalls(void) { three(start_alltoall); }
static void three_allreduces(void) { three(start_allreduce); }
static void neighbor_alltoall(void) { MPI_Neighbor_alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, line); }

/* A square of complex numbers, distributed by rows, is turned round: columns leave as strided elements, arrive as rows. */
static MPI_Datatype *column_types, *row_types;
static int *ones, *sent_at, *received_at;
static void transpose(void) {
  MPI_Alltoallw(out, ones, sent_at, column_types, in, ones, received_at, row_types, MPI_COMM_WORLD);
}

static void set_transposition(int side) {
  const int rows = side / ranks;
  const int element = 2 * (int)sizeof(double);
  column_types = malloc((size_t)ranks * sizeof(MPI_Datatype));
  row_types = malloc((size_t)ranks * sizeof(MPI_Datatype));
  ones = malloc((size_t)ranks * sizeof(int));
  sent_at = malloc((size_t)ranks * sizeof(int));
  received_at = malloc((size_t)ranks * sizeof(int));
  MPI_Datatype number, column, whole;
  MPI_Type_contiguous(2, MPI_DOUBLE, &number);
  MPI_Type_vector(rows, 1, side, number, &column);
  MPI_Type_create_resized(column, 0, element, &whole);
  for (int peer = 0; peer < ranks; ++peer) {
    MPI_Type_contiguous(rows, whole, &column_types[peer]); /* rows columns, each of `rows` elements */
    MPI_Type_vector(rows, rows, side, number, &row_types[peer]);
    MPI_Type_commit(&column_types[peer]);
    MPI_Type_commit(&row_types[peer]);
    ones[peer] = 1;
    sent_at[peer] = peer * rows * element;
    received_at[peer] = peer * rows * element;
  }
  MPI_Type_free(&number);
  MPI_Type_free(&column);
  MPI_Type_free(&whole);
}

/* ---- measuring ---- */

static int by_value(const void* one, const void* other) {
  const double difference = *(const double*)one - *(const double*)other;
  return difference < 0 ? -1 : difference > 0;
}

static double batch(void (*operation)(void), int rounds) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double started = MPI_Wtime();
  for (int i = 0; i < rounds; ++i) {
    operation();
  }
  double taken = (MPI_Wtime() - started) / rounds;
  MPI_Bcast(&taken, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  return taken;
}

static void measure(const char* what, void (*operation)(void), double share) {
  double taken[BATCHES];
  const double seconds = ranks > 2 ? 5 * kBatchSeconds : kBatchSeconds;
  int rounds = 4;
  for (double guess = batch(operation, rounds); guess * rounds < seconds && rounds < 1 << 20;
       guess = batch(operation, rounds)) {
    rounds *= guess * rounds * 4 < seconds ? 4 : 2;
  }
  for (int i = 0; i < BATCHES; ++i) {
    taken[i] = batch(operation, rounds);
  }
  qsort(taken, BATCHES, sizeof *taken, by_value);
  if (rank == 0) {
    printf("%s\t%d\t%.4f\n", what, bytes, taken[BATCHES / 2] * share * 1e6);
    fflush(stdout);
  }
}

static void contiguous(int of) {
  bytes = of;
  type = MPI_BYTE;
  count = of;
}

static void pairs(void) {
  static const int sizes[] = {8,       64,       256,      512,       1 << 10, 2 << 10, 4 << 10,
                              8 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20};
  static const int short_ones[] = {8, 64, 256, 1 << 10, 2 << 10, 4 << 10, 16 << 10};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    contiguous(sizes[i]);
    measure("one way", one_way, 0.5);
  }
  cold_bytes = kColdBytes;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    contiguous(sizes[i]);
    measure("one way, cold", one_way, 0.5);
  }
  cold_bytes = 0;
  at = 0;
  for (size_t i = 0; i < sizeof short_ones / sizeof *short_ones; ++i) {
    contiguous(short_ones[i]);
    measure("both ways", both_ways, 1);
  }
  for (size_t i = 0; i < sizeof short_ones / sizeof *short_ones; ++i) {
    contiguous(short_ones[i]);
    measure("window of 64, each message", window, 1.0 / WINDOW);
  }
}

static void to_other_nodes(void) {
  static const int sizes[] = {8, 64, 512, 4 << 10, 64 << 10, 512 << 10, 4 << 20};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    contiguous(sizes[i]);
    measure("one way", one_way, 0.5);
  }
  contiguous(64);
  measure("window of 64, each message", window, 1.0 / WINDOW);
  bytes = 8;
  measure("MPI_Allreduce", allreduce, 1);
}

static void strided(void) {
  static const int runs[] = {64, 256, 2048}, sizes[] = {64 << 10, 512 << 10, 4 << 20};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
    contiguous(sizes[s]);
    measure("contiguous, for comparison", one_way, 0.5);
    for (size_t r = 0; r < sizeof runs / sizeof *runs; ++r) {
      char what[64];
      MPI_Type_vector(sizes[s] / runs[r], runs[r], 2 * runs[r], MPI_BYTE, &type);
      MPI_Type_commit(&type);
      count = 1;
      snprintf(what, sizeof what, "runs of %d B, both sides", runs[r]);
      measure(what, one_way, 0.5);
      MPI_Type_free(&type);
    }
  }
}

static void collectives(void) {
  static const int sizes[] = {8, 256, 1 << 10, 2 << 10, 4 << 10, 64 << 10, 512 << 10, 4 << 20};
  static const struct {
    const char* what;
    void (*operation)(void);
  } all[] = {{"MPI_Bcast", bcast},
             {"MPI_Allgather", allgather},
             {"MPI_Alltoall", alltoall},
             {"MPI_Allreduce", allreduce},
             {"MPI_Reduce", reduce}};
  bytes = 0;
  measure("MPI_Barrier", barrier, 1);
  for (size_t c = 0; c < sizeof all / sizeof *all; ++c) {
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
      bytes = sizes[s];
      measure(all[c].what, all[c].operation, 1);
    }
  }
}

static void nonblocking(void) {
  static const int sizes[] = {8, 4 << 10, 64 << 10, 1 << 20};
  static const struct {
    const char* what;
    void (*operation)(void);
  } all[] = {{"MPI_Ibcast, of three", three_bcasts},
             {"MPI_Iallgather, of three", three_allgathers},
             {"MPI_Ialltoall, of three", three_alltoalls},
             {"MPI_Iallreduce, of three", three_allreduces},
             {"MPI_Neighbor_alltoall", neighbor_alltoall}};
  const int periodic = ranks > 2;
  MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &periodic, 0, &line);
  for (size_t c = 0; c < sizeof all / sizeof *all; ++c) {
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
      bytes = sizes[s];
      measure(all[c].what, all[c].operation, all[c].operation == neighbor_alltoall ? 1 : 1.0 / 3);
    }
  }
  MPI_Comm_free(&line);
}

static void transposition(void) {
  for (int side = 256; side <= 2048; side *= 2) {
    set_transposition(side);
    bytes = side * (side / ranks) * 2 * (int)sizeof(double);
    measure("transposition by datatypes", transpose, 1);
  }
}

static void crowd(void) {
  static const int sizes[] = {8, 4 << 10, 64 << 10};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
    contiguous(sizes[s]);
    measure("one way, all pairs at once", one_way, 0.5);
    measure("ring", ring, 1);
    measure("halo", halo, 1);
  }
  contiguous(64);
  measure("window of 64, each message", window, 1.0 / WINDOW);
  bytes = 0;
  measure("MPI_Barrier", barrier, 1);
  bytes = 8;
  measure("MPI_Allreduce", allreduce, 1);
}

static void uneven_work(void) {
  contiguous(4 << 10);
  measure("1 ms of work, ring", work_and_ring, 1);
  measure("1 ms of work, halo", work_and_halo, 1);
  measure("1 ms of work, MPI_Alltoall", work_and_alltoall, 1);
  contiguous(8);
  measure("1 ms of work, MPI_Allreduce", work_and_allreduce, 1);
  work_us = 300;
  contiguous(4 << 10);
  measure("0.3 ms of work, ring", work_and_ring, 1);
  measure("0.3 ms of work, MPI_Alltoall", work_and_alltoall, 1);
}

#include "one_sided.h"
#include "threads.h"

int main(int argc, char** argv) {
  int threads = MPI_THREAD_SINGLE;
  for (int i = 1; i < argc; ++i) {
    threads = strcmp(argv[i], "threads") == 0 ? MPI_THREAD_MULTIPLE : threads;
  }
  int provided;
  MPI_Init_thread(&argc, &argv, threads, &provided);
  if (provided < threads) {
    fprintf(stderr, "this MPI library does not let several threads call it at once\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const size_t room = ranks == 2 ? kColdBytes + WARM_BYTES : WARM_BYTES;
  out = malloc(room);
  in = malloc(room);
  memset(out, rank + 1, room); /* not 0: then a compiler leaves the pages untouched */
  memset(in, rank + 1, room);
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "pairs") == 0) {
      pairs();
    } else if (strcmp(argv[i], "other") == 0) {
      to_other_nodes();
    } else if (strcmp(argv[i], "strided") == 0) {
      strided();
    } else if (strcmp(argv[i], "collectives") == 0) {
      collectives();
    } else if (strcmp(argv[i], "nonblocking") == 0) {
      nonblocking();
    } else if (strcmp(argv[i], "transposition") == 0) {
      transposition();
    } else if (strcmp(argv[i], "crowd") == 0) {
      crowd();
    } else if (strcmp(argv[i], "work") == 0) {
      uneven_work();
    } else if (strcmp(argv[i], "one-sided") == 0) {
      one_sided();
    } else if (strcmp(argv[i], "threads") == 0) {
      several_threads();
    }
  }
  free(out);
  free(in);
  MPI_Finalize();
  return 0;
}
