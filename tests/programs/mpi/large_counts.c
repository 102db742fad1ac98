/* Collectives with large counts (MPI_Bcast_c and its kin): content of every one, with and without gaps, once by the blocking
 * forms and once by the nonblocking ones, all of these under way at once. Everything else is driven out of memory before the
 * calls. Prints "large counts ok" and how many calls were made: blocking ones and nonblocking ones that direct messages serve,
 * and those left to the library. usage: large_counts PRESSURE_MIB (with --reductions direct) */
#include <mpi.h>

#include "numbered_integers.h"
#include "pressure.h"

enum { MOST = 64 };
static int waits; /* by the blocking forms */
static long served[2], left_to_library;
static MPI_Request requests[MOST];
static int used;
static int* buffers[MOST];
static int buffer_count;
static MPI_Datatype gaps; /* one integer of GAP */
static MPI_Op own_sum;    /* of the program's own, with large counts */

#define CALL(direct, Blocking, Nonblocking, ...)             \
  do {                                                       \
    if (waits) {                                             \
      MPI_##Blocking##_c(__VA_ARGS__);                       \
    } else {                                                 \
      MPI_##Nonblocking##_c(__VA_ARGS__, &requests[used++]); \
    }                                                        \
    ++*((direct) ? &served[waits] : &left_to_library);       \
  } while (0)

/* Integers that are all -1. */
static int* make(MPI_Count integers) {
  const size_t room = ((size_t)integers + 1) * sizeof(int);
  int* buffer = malloc(room);
  memset(buffer, 0xff, room);
  buffers[buffer_count++] = buffer;
  return buffer;
}

static void end_calls(void) {
  MPI_Waitall(used, requests, MPI_STATUSES_IGNORE);
  used = 0;
}

static void free_buffers(void) {
  while (buffer_count > 0) {
    free(buffers[--buffer_count]);
  }
}

/* A part for each rank, in the order of descending ranks: rank r's has `count` + r elements. */
typedef struct {
  MPI_Count counts[MOST];
  MPI_Aint places[MOST], bytes[MOST]; /* in elements, and in bytes */
  MPI_Datatype types[MOST];
  MPI_Count total;
} Parts;

static Parts cut(int count, int step) {
  Parts parts = {.total = 0};
  for (int r = size - 1; r >= 0; --r) {
    parts.counts[r] = count + r;
    parts.places[r] = parts.total;
    parts.bytes[r] = parts.total * step * (MPI_Aint)sizeof(int);
    parts.types[r] = step == 1 ? MPI_INT : gaps;
    parts.total += parts.counts[r];
  }
  return parts;
}

static void moves(int count, int step, int root) {
  const MPI_Datatype type = step == 1 ? MPI_INT : gaps;
  const MPI_Count n = count;
  /* Between ranks r and s go count + r + s; what is received has the gaps. */
  const Parts plain = cut(count, 1), wide = cut(count, step), out_parts = cut(count + rank, 1),
              in_parts = cut(count + rank, step);
  int *one = make(n * step), *own = make(n + size), *got = make(n * step), *got_v = make((n + size) * step);
  int *scattered = make(n * size), *scattered_v = make(plain.total), *gathered = make(n * size * step);
  int *gathered_v = make(plain.total * step), *collected = make(n * size * step), *collected_v = make(plain.total * step);
  int *placed = make(n * size * step), *out = make(n * size), *in = make(n * size * step), *swapped = make(n * size * step);
  int *out_v = make(out_parts.total), *in_v = make(out_parts.total * step), *in_w = make(out_parts.total * step);
  put(own, rank, 0, count + rank, 1);
  put(placed + rank * n * step, rank, 0, count, step);
  if (rank == root) {
    put(one, root, 9, count, step);
  }
  for (int r = 0; r < size; ++r) {
    put(scattered + r * n, root, r, count, 1);
    put(scattered_v + plain.places[r], root, r, count + r, 1);
    put(out + r * n, rank, r, count, 1);
    put(swapped + r * n * step, rank, r, count, step);
    put(out_v + out_parts.places[r], rank, r, count + rank + r, 1);
  }
  press();
  CALL(1, Bcast, Ibcast, one, n, type, root, MPI_COMM_WORLD);
  CALL(1, Gather, Igather, own, n, MPI_INT, gathered, n, type, root, MPI_COMM_WORLD);
  CALL(1, Gatherv, Igatherv, own, n + rank, MPI_INT, gathered_v, wide.counts, wide.places, type, root, MPI_COMM_WORLD);
  CALL(1, Scatter, Iscatter, scattered, n, MPI_INT, got, n, type, root, MPI_COMM_WORLD);
  CALL(1, Scatterv, Iscatterv, scattered_v, plain.counts, plain.places, MPI_INT, got_v, n + rank, type, root, MPI_COMM_WORLD);
  CALL(1, Allgather, Iallgather, own, n, MPI_INT, collected, n, type, MPI_COMM_WORLD);
  CALL(1, Allgather, Iallgather, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, placed, n, type, MPI_COMM_WORLD);
  CALL(1, Allgatherv, Iallgatherv, own, n + rank, MPI_INT, collected_v, wide.counts, wide.places, type, MPI_COMM_WORLD);
  CALL(1, Alltoall, Ialltoall, out, n, MPI_INT, in, n, type, MPI_COMM_WORLD);
  CALL(waits, Alltoall, Ialltoall, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, swapped, n, type, MPI_COMM_WORLD);
  CALL(1, Alltoallv, Ialltoallv, out_v, out_parts.counts, out_parts.places, MPI_INT, in_v, in_parts.counts, in_parts.places,
       type, MPI_COMM_WORLD);
  CALL(1, Alltoallw, Ialltoallw, out_v, out_parts.counts, out_parts.bytes, out_parts.types, in_w, in_parts.counts,
       in_parts.bytes, in_parts.types, MPI_COMM_WORLD);
  end_calls();
  doing = "MPI_Bcast_c", check(one, root, 9, count, step);
  doing = "MPI_Scatter_c", check(got, root, rank, count, step);
  doing = "MPI_Scatterv_c", check(got_v, root, rank, count + rank, step);
  for (int r = 0; r < size; ++r) {
    if (rank == root) {
      doing = "MPI_Gather_c", check(gathered + r * n * step, r, 0, count, step);
      doing = "MPI_Gatherv_c", check(gathered_v + wide.places[r] * step, r, 0, count + r, step);
    }
    doing = "MPI_Allgather_c", check(collected + r * n * step, r, 0, count, step);
    doing = "MPI_Allgather_c in place", check(placed + r * n * step, r, 0, count, step);
    doing = "MPI_Allgatherv_c", check(collected_v + wide.places[r] * step, r, 0, count + r, step);
    doing = "MPI_Alltoall_c", check(in + r * n * step, r, rank, count, step);
    doing = "MPI_Alltoall_c in place", check(swapped + r * n * step, r, rank, count, step);
    doing = "MPI_Alltoallv_c", check(in_v + in_parts.places[r] * step, r, rank, count + r + rank, step);
    doing = "MPI_Alltoallw_c", check(in_w + in_parts.places[r] * step, r, rank, count + r + rank, step);
  }
  free_buffers();
}

static void add(void* in, void* into, MPI_Count* count, MPI_Datatype* type) {
  (void)type;
  for (MPI_Count i = 0; i < *count; ++i) {
    ((int*)into)[i] += ((int*)in)[i];
  }
}

/* `part` has the sums of what the ranks `first` to `last` have, from element `begin` on. */
static void check_sums(const int* part, int first, int last, int begin, int count) {
  for (int i = 0; i < count; ++i) {
    int sum = 0;
    for (int r = first; r <= last; ++r) {
      sum += value(r, 3, begin + i);
    }
    if (part[i] != sum) {
      fail(count, i, part[i], sum);
    }
  }
}

static void reductions(int count, int root) {
  const MPI_Count n = count;
  const Parts parts = cut(count, 1);
  MPI_Count counts[MOST]; /* of MPI_Reduce_scatter: in the order of ascending ranks */
  int total = 0, begin = 0;
  for (int r = 0; r < size; ++r) {
    counts[r] = parts.counts[r];
    begin += r < rank ? count + r : 0;
    total += count + r;
  }
  int *own = make(total), *all = make(n), *all_by_own = make(n), *at_root = make(n), *through = make(n), *before = make(n);
  int *block = make(n), *part = make(n + rank);
  put(own, rank, 3, total, 1);
  put(through, rank, 3, count, 1); /* in place */
  press();
  /* What does not wait is the library's if all operands together are longer than 64 KiB, or if the operation is the program's.
   */
  const int most = (64 << 10) / (int)sizeof(int) / size;
  const int whole = waits || count <= most, of_all = waits || count * size <= most;
  CALL(whole, Allreduce, Iallreduce, own, all, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CALL(waits, Allreduce, Iallreduce, own, all_by_own, n, MPI_INT, own_sum, MPI_COMM_WORLD);
  CALL(whole, Reduce, Ireduce, own, at_root, n, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
  CALL(whole, Scan, Iscan, MPI_IN_PLACE, through, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CALL(whole, Exscan, Iexscan, own, before, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CALL(of_all, Reduce_scatter_block, Ireduce_scatter_block, own, block, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CALL(waits || total <= most, Reduce_scatter, Ireduce_scatter, own, part, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  end_calls();
  doing = "MPI_Allreduce_c", check_sums(all, 0, size - 1, 0, count);
  doing = "MPI_Allreduce_c by an operation of its own", check_sums(all_by_own, 0, size - 1, 0, count);
  doing = "MPI_Reduce_c", check_sums(at_root, 0, size - 1, 0, rank == root ? count : 0);
  doing = "MPI_Scan_c", check_sums(through, 0, rank, 0, count);
  doing = "MPI_Exscan_c", check_sums(before, 0, rank - 1, 0, rank > 0 ? count : 0);
  doing = "MPI_Reduce_scatter_block_c", check_sums(block, 0, size - 1, count * rank, count);
  doing = "MPI_Reduce_scatter_c", check_sums(part, 0, size - 1, begin, count + rank);
  free_buffers();
}

/* Along a chain of the ranks: those at its ends have one neighbour only. */
static void neighborhoods(MPI_Comm chain, int count, int step) {
  const MPI_Datatype type = step == 1 ? MPI_INT : gaps, plain[2] = {MPI_INT, MPI_INT}, types[2] = {type, type};
  const MPI_Count n = count;
  const int neighbors[2] = {rank - 1, rank + 1};
  const int sizes[2] = {count + rank + neighbors[0], count + rank + neighbors[1]}; /* of what goes each way and back */
  const MPI_Count counts[2] = {sizes[0], sizes[1]};
  const MPI_Count gathered_counts[2] = {count + neighbors[0], count + neighbors[1]};
  const MPI_Aint places[2] = {sizes[1], 0}, gathered_places[2] = {gathered_counts[1], 0};
  const MPI_Aint out_bytes[2] = {sizes[1] * (MPI_Aint)sizeof(int), 0}, in_bytes[2] = {out_bytes[0] * step, 0};
  const int room = 2 * (count + 2 * size);
  int *own = make(room), *gathered = make(2 * n * step), *gathered_v = make(room * step), *out = make(2 * n);
  int *in = make(2 * n * step), *out_v = make(room), *in_v = make(room * step), *in_w = make(room * step);
  put(own, rank, 0, count + rank, 1);
  for (int way = 0; way < 2; ++way) {
    put(out + way * n, rank, neighbors[way], count, 1);
    put(out_v + places[way], rank, neighbors[way], sizes[way], 1);
  }
  press();
  CALL(1, Neighbor_allgather, Ineighbor_allgather, own, n, MPI_INT, gathered, n, type, chain);
  CALL(1, Neighbor_allgatherv, Ineighbor_allgatherv, own, n + rank, MPI_INT, gathered_v, gathered_counts, gathered_places, type,
       chain);
  CALL(1, Neighbor_alltoall, Ineighbor_alltoall, out, n, MPI_INT, in, n, type, chain);
  CALL(1, Neighbor_alltoallv, Ineighbor_alltoallv, out_v, counts, places, MPI_INT, in_v, counts, places, type, chain);
  CALL(1, Neighbor_alltoallw, Ineighbor_alltoallw, out_v, counts, out_bytes, plain, in_w, counts, in_bytes, types, chain);
  end_calls();
  for (int way = 0; way < 2; ++way) {
    const int from = neighbors[way];
    if (from >= 0 && from < size) {
      doing = "MPI_Neighbor_allgather_c", check(gathered + way * n * step, from, 0, count, step);
      doing = "MPI_Neighbor_allgatherv_c", check(gathered_v + gathered_places[way] * step, from, 0, count + from, step);
      doing = "MPI_Neighbor_alltoall_c", check(in + way * n * step, from, rank, count, step);
      doing = "MPI_Neighbor_alltoallv_c", check(in_v + places[way] * step, from, rank, sizes[way], step);
      doing = "MPI_Neighbor_alltoallw_c", check(in_w + places[way] * step, from, rank, sizes[way], step);
    }
  }
  free_buffers();
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  bytes = (size_t)atoi(argv[1]) << 20;
  pressure = malloc(bytes + 1);
  MPI_Comm chain;
  MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &(int){0}, 0, &chain);
  MPI_Type_create_resized(MPI_INT, 0, GAP * (MPI_Aint)sizeof(int), &gaps);
  MPI_Type_commit(&gaps);
  MPI_Op_create_c(add, 1, &own_sum);
  const int counts[] = {1, 100, 3000, 70000};
  for (int s = 0; s < 4; ++s) {
    for (waits = 0; waits < 2; ++waits) {
      const int root = (s + waits) % size;
      for (int step = 1; step <= GAP; step += GAP - 1) {
        moves(counts[s], step, root);
        neighborhoods(chain, counts[s], step);
      }
      reductions(counts[s], root);
    }
  }
  if (rank == 0) {
    printf("large counts ok %ld %ld %ld\n", served[1], served[0], left_to_library);
  }
  MPI_Op_free(&own_sum);
  MPI_Type_free(&gaps);
  MPI_Comm_free(&chain);
  MPI_Finalize();
  return 0;
}
