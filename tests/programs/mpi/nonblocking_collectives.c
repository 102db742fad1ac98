/* Nonblocking and neighbourhood collectives: content of every one, many under way at once and among point-to-point messages and
 * blocking collectives, ended in several ways, with datatypes and communicators freed before their end. Prints
 * "nonblocking ok", how many nonblocking calls were made that direct messages serve, and how many blocking neighbourhood ones.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numbered_integers.h"

enum { MOST = 64 };
static long started, neighborhoods;

static int* make(size_t integers) {
  int* buffer = malloc((integers + 1) * sizeof(int));
  memset(buffer, 0xff, (integers + 1) * sizeof(int));
  return buffer;
}

static MPI_Datatype make_gaps(void) {
  MPI_Datatype vector, gaps;
  MPI_Type_vector(1, 1, GAP, MPI_INT, &vector);
  MPI_Type_create_resized(vector, 0, GAP * (int)sizeof(int), &gaps);
  MPI_Type_commit(&gaps);
  MPI_Type_free(&vector);
  return gaps;
}

/* Ends requests: all at once, one by one as they come, by tests, or in the other order. */
static void finish(int way, int count, MPI_Request* requests) {
  if (way == 0) {
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
  } else if (way == 1) {
    for (int left = count, index = 0; left > 0; --left) {
      MPI_Waitany(count, requests, &index, MPI_STATUS_IGNORE);
    }
  } else if (way == 2) {
    for (int done = 0; !done;) {
      MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE);
    }
  } else {
    for (int index = count; index-- > 0;) {
      MPI_Status status;
      int known = 0;
      while (!known) {
        MPI_Request_get_status(requests[index], &known, &status);
      }
      MPI_Wait(&requests[index], &status);
    }
  }
  for (int index = 0; index < count; ++index) {
    if (requests[index] != MPI_REQUEST_NULL) {
      fail(count, index, 0, 1);
    }
  }
}

static void everything_at_once(int count, int step, int root, int way) {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Datatype type = step == 1 ? MPI_INT : make_gaps();
  MPI_Request requests[32];
  int used = 0;
  /* With counts: rank r has count + r; between ranks r and s go count + r + s. */
  int counts[MOST], places[MOST], mutual[MOST], mutual_places[MOST], bytes[MOST], mutual_bytes[MOST];
  MPI_Datatype types[MOST], plain[MOST];
  int total = 0, mutual_total = 0;
  for (int r = size - 1; r >= 0; --r) {
    counts[r] = count + r;
    places[r] = total;
    total += counts[r];
    mutual[r] = count + r + rank;
    mutual_places[r] = mutual_total;
    mutual_total += mutual[r];
    types[r] = type;
    plain[r] = MPI_INT;
  }
  for (int r = 0; r < size; ++r) {
    bytes[r] = mutual_places[r] * (int)sizeof(int);
    mutual_bytes[r] = mutual_places[r] * step * (int)sizeof(int);
  }
  const size_t n = (size_t)count, all = (size_t)total * (size_t)step, several = (size_t)mutual_total;
  const size_t every = n * (size_t)size * (size_t)step;
  int *broadcast = make(n * (size_t)step), *own = make(n + (size_t)size), *gathered = make(every), *gathered_v = make(all);
  int *scattered = make(every), *scattered_v = make(all), *got = make(n + (size_t)size), *got_v = make(n + (size_t)size);
  int *collected = make(every), *collected_v = make(all), *out = make(n * (size_t)size), *in = make(every);
  int *out_v = make(several), *in_v = make(several * (size_t)step), *in_w = make(several * (size_t)step);
  int sum_of[4] = {rank, 2 * rank, -rank, 5}, sum[4] = {0}, most = rank, *folded = make(n), *largest = make(n);
  put(own, rank, 0, count + rank, 1);
  if (rank == root) {
    put(broadcast, root, 9, count, step);
    for (int r = 0; r < size; ++r) {
      put(scattered + (size_t)r * n * (size_t)step, root, r, count, step);
      put(scattered_v + places[r] * step, root, r, counts[r], step);
    }
  }
  for (int r = 0; r < size; ++r) {
    put(out + (size_t)r * n, rank, r, count, 1);
    put(out_v + mutual_places[r], rank, r, mutual[r], 1);
  }
  put(collected + (size_t)rank * n * (size_t)step, rank, 0, count, step); /* in place */

  MPI_Ibarrier(comm, &requests[used++]);
  MPI_Ibcast(broadcast, count, type, root, comm, &requests[used++]);
  MPI_Igather(own, count, MPI_INT, gathered, count, type, root, comm, &requests[used++]);
  MPI_Igatherv(own, counts[rank], MPI_INT, gathered_v, counts, places, type, root, comm, &requests[used++]);
  MPI_Iscatter(scattered, count, type, got, count, MPI_INT, root, comm, &requests[used++]);
  MPI_Iscatterv(scattered_v, counts, places, type, got_v, counts[rank], MPI_INT, root, comm, &requests[used++]);
  int ring[2] = {rank, -1}; /* a message and a blocking collective in between */
  MPI_Sendrecv(&ring[0], 1, MPI_INT, (rank + 1) % size, 5, &ring[1], 1, MPI_INT, (rank + size - 1) % size, 5, comm,
               MPI_STATUS_IGNORE);
  int agreed = 0;
  MPI_Allreduce(&ring[1], &agreed, 1, MPI_INT, MPI_SUM, comm);
  MPI_Iallgather(MPI_IN_PLACE, count, MPI_INT, collected, count, type, comm, &requests[used++]);
  MPI_Iallgatherv(own, counts[rank], MPI_INT, collected_v, counts, places, type, comm, &requests[used++]);
  MPI_Ialltoall(out, count, MPI_INT, in, count, type, comm, &requests[used++]);
  MPI_Ialltoallv(out_v, mutual, mutual_places, MPI_INT, in_v, mutual, mutual_places, type, comm, &requests[used++]);
  MPI_Ialltoallw(out_v, mutual, bytes, plain, in_w, mutual, mutual_bytes, types, comm, &requests[used++]);
  MPI_Iallreduce(sum_of, sum, 4, MPI_INT, MPI_SUM, comm, &requests[used++]);
  MPI_Ireduce(rank == root ? MPI_IN_PLACE : &most, &most, 1, MPI_INT, MPI_MAX, root, comm, &requests[used++]);
  started += used;
  /* Left to the library if they are long. (Then the communicator must live: Open MPI crashes otherwise.) */
  const int all_served = (size_t)count <= 65536 / sizeof(int) / (size_t)size;
  MPI_Iallreduce(own, folded, count, MPI_INT, MPI_SUM, comm, &requests[used++]);
  MPI_Ireduce(own, largest, count, MPI_INT, MPI_MAX, root, comm, &requests[used++]);
  started += all_served ? 2 : 0;
  /* Rank r gets 1 + r % 2 elements of these, or one of each block. */
  int parts[MOST], parts_before = 0, elements = 0, operand[2 * MOST], block[MOST], part[2], one = 0;
  for (int r = 0; r < size; ++r) {
    parts[r] = 1 + r % 2;
    parts_before += r < rank ? parts[r] : 0;
    elements += parts[r];
    block[r] = value(rank, r, 1);
  }
  for (int i = 0; i < elements; ++i) {
    operand[i] = value(rank, 7, i);
  }
  int through[2] = {rank, value(rank, 0, 0)}, *before = make(n);
  MPI_Ireduce_scatter(operand, part, parts, MPI_INT, MPI_SUM, comm, &requests[used++]);
  MPI_Ireduce_scatter_block(MPI_IN_PLACE, block, 1, MPI_INT, MPI_SUM, comm, &requests[used++]);
  MPI_Iscan(MPI_IN_PLACE, through, 2, MPI_INT, MPI_SUM, comm, &requests[used++]);
  MPI_Iexscan(&rank, &one, 1, MPI_INT, MPI_SUM, comm, &requests[used++]);
  int place[2] = {rank % 2, rank}, lowest[2];
  MPI_Iallreduce(place, lowest, 1, MPI_2INT, MPI_MINLOC, comm, &requests[used++]);
  started += 5;
  MPI_Iexscan(own, before, count, MPI_INT, MPI_MAX, comm, &requests[used++]);
  started += all_served ? 1 : 0;
  if (step != 1) {
    MPI_Type_free(&type);
  }
  const int freed_early = way < 2 && all_served;
  if (freed_early) {
    MPI_Comm_free(&comm);
  }
  finish(way, used, requests);
  if (!freed_early) {
    MPI_Comm_free(&comm);
  }

  doing = "a message between", check(&ring[1], 0, 0, 0, 1);
  if (ring[1] != (rank + size - 1) % size || agreed != size * (size - 1) / 2) {
    fail(1, 0, ring[1], agreed);
  }
  doing = "MPI_Iallreduce of places";
  if (lowest[0] != 0 || lowest[1] != 0) {
    fail(1, 0, lowest[1], 0);
  }
  doing = "MPI_Ibcast", check(broadcast, root, 9, count, step);
  doing = "MPI_Iscatter", check(got, root, rank, count, 1);
  doing = "MPI_Iscatterv", check(got_v, root, rank, counts[rank], 1);
  for (int r = 0; r < size; ++r) {
    const size_t at = (size_t)r * n * (size_t)step;
    if (rank == root) {
      doing = "MPI_Igather", check(gathered + at, r, 0, count, step);
      doing = "MPI_Igatherv", check(gathered_v + places[r] * step, r, 0, counts[r], step);
    }
    doing = "MPI_Iallgather", check(collected + at, r, 0, count, step);
    doing = "MPI_Iallgatherv", check(collected_v + places[r] * step, r, 0, counts[r], step);
    doing = "MPI_Ialltoall", check(in + at, r, rank, count, step);
    doing = "MPI_Ialltoallv", check(in_v + mutual_places[r] * step, r, rank, mutual[r], step);
    doing = "MPI_Ialltoallw", check(in_w + mutual_places[r] * step, r, rank, mutual[r], step);
  }
  const int ranks = size * (size - 1) / 2;
  doing = "MPI_Iallreduce";
  if (sum[0] != ranks || sum[1] != 2 * ranks || sum[2] != -ranks || sum[3] != 5 * size) {
    fail(4, 0, sum[0], ranks);
  }
  doing = "MPI_Ireduce";
  if (rank == root && most != size - 1) {
    fail(1, 0, most, size - 1);
  }
  for (int i = 0; i < count; ++i) {
    const int expected = (int)((unsigned)ranks * 1000003u + (unsigned)size * 7u * (unsigned)i);
    if (folded[i] != expected) {
      fail(count, i, folded[i], expected);
    }
    if (rank == root && largest[i] != value(size - 1, 0, i)) {
      fail(count, i, largest[i], value(size - 1, 0, i));
    }
  }
  for (int i = 0; i < parts[rank]; ++i) {
    unsigned expected = 0;
    for (int r = 0; r < size; ++r) {
      expected += (unsigned)value(r, 7, parts_before + i);
    }
    doing = "MPI_Ireduce_scatter";
    if (part[i] != (int)expected) {
      fail(parts[rank], i, part[i], (int)expected);
    }
  }
  unsigned block_sum = 0, through_sum = 0;
  for (int r = 0; r < size; ++r) {
    block_sum += (unsigned)value(r, rank, 1);
    through_sum += r <= rank ? (unsigned)value(r, 0, 0) : 0;
  }
  doing = "MPI_Ireduce_scatter_block";
  if (block[0] != (int)block_sum) {
    fail(1, 0, block[0], (int)block_sum);
  }
  doing = "MPI_Iscan";
  if (through[0] != rank * (rank + 1) / 2 || through[1] != (int)through_sum) {
    fail(2, 0, through[0], rank * (rank + 1) / 2);
  }
  doing = "MPI_Iexscan";
  if (one != rank * (rank - 1) / 2) {
    fail(1, 0, one, rank * (rank - 1) / 2);
  }
  for (int i = 0; i < count && rank > 0; ++i) {
    if (before[i] != value(rank - 1, 0, i)) {
      fail(count, i, before[i], value(rank - 1, 0, i));
    }
  }
  int* buffers[] = {broadcast,   own, gathered, gathered_v, scattered, scattered_v, got,    got_v,   collected,
                    collected_v, out, in,       out_v,      in_v,      in_w,        folded, largest, before};
  for (size_t index = 0; index < sizeof buffers / sizeof *buffers; ++index) {
    free(buffers[index]);
  }
}

/* ---- neighbourhoods ---- */

/* `sources` send to this rank, it sends to `destinations`; MPI_PROC_NULL among them is passed over. */
static void neighborhood(MPI_Comm comm, int served, int sources, const int* source, int destinations, const int* destination,
                         int count, int step, int blocking) {
  MPI_Datatype type = step == 1 ? MPI_INT : make_gaps();
  const size_t n = (size_t)count, s = (size_t)step;
  int out_counts[MOST], out_places[MOST], in_counts[MOST], in_places[MOST];
  MPI_Aint out_bytes[MOST], in_bytes[MOST];
  MPI_Datatype plain[MOST], types[MOST];
  int outgoing = 0, incoming = 0;
  for (int i = 0; i < destinations; ++i) { /* between ranks r and s go count + r + s */
    out_counts[i] = destination[i] == MPI_PROC_NULL ? 1 : count + rank + destination[i];
    out_places[i] = outgoing;
    out_bytes[i] = outgoing * (int)sizeof(int);
    plain[i] = MPI_INT;
    outgoing += out_counts[i];
  }
  for (int i = 0; i < sources; ++i) {
    in_counts[i] = source[i] == MPI_PROC_NULL ? 1 : count + rank + source[i];
    in_places[i] = incoming;
    in_bytes[i] = (MPI_Aint)incoming * step * (int)sizeof(int);
    types[i] = type;
    incoming += in_counts[i];
  }
  int gathered_counts[MOST], gathered_places[MOST], gathered_total = 0; /* rank r sends count + r to everybody */
  for (int i = sources - 1; i >= 0; --i) {
    gathered_counts[i] = source[i] == MPI_PROC_NULL ? 1 : count + source[i];
    gathered_places[i] = gathered_total;
    gathered_total += gathered_counts[i];
  }
  int *own = make(n + (size_t)rank), *gathered = make(n * s * (size_t)sources), *gathered_v = make((size_t)gathered_total * s);
  int *out = make(n * (size_t)destinations), *in = make(n * s * (size_t)sources), *out_v = make((size_t)outgoing);
  int *in_v = make((size_t)incoming * s), *in_w = make((size_t)incoming * s);
  put(own, rank, 0, count + rank, 1);
  for (int i = 0; i < destinations; ++i) {
    put(out + (size_t)i * n, rank, destination[i], count, 1);
    put(out_v + out_places[i], rank, destination[i], out_counts[i], 1);
  }
  if (blocking) {
    MPI_Neighbor_allgather(own, count, MPI_INT, gathered, count, type, comm);
    MPI_Neighbor_allgatherv(own, count + rank, MPI_INT, gathered_v, gathered_counts, gathered_places, type, comm);
    MPI_Neighbor_alltoall(out, count, MPI_INT, in, count, type, comm);
    MPI_Neighbor_alltoallv(out_v, out_counts, out_places, MPI_INT, in_v, in_counts, in_places, type, comm);
    MPI_Neighbor_alltoallw(out_v, out_counts, out_bytes, plain, in_w, in_counts, in_bytes, types, comm);
    neighborhoods += served ? 5 : 0;
  } else {
    MPI_Request requests[5];
    MPI_Ineighbor_allgather(own, count, MPI_INT, gathered, count, type, comm, &requests[0]);
    MPI_Ineighbor_allgatherv(own, count + rank, MPI_INT, gathered_v, gathered_counts, gathered_places, type, comm,
                             &requests[1]);
    MPI_Ineighbor_alltoall(out, count, MPI_INT, in, count, type, comm, &requests[2]);
    MPI_Ineighbor_alltoallv(out_v, out_counts, out_places, MPI_INT, in_v, in_counts, in_places, type, comm, &requests[3]);
    MPI_Ineighbor_alltoallw(out_v, out_counts, out_bytes, plain, in_w, in_counts, in_bytes, types, comm, &requests[4]);
    finish(count % 4, 5, requests);
    started += served ? 5 : 0;
  }
  for (int i = 0; i < sources; ++i) {
    const int from = source[i];
    const int expected = from == MPI_PROC_NULL ? 0 : count;
    doing = "MPI_Neighbor_allgather", check(gathered + (size_t)i * n * s, from, 0, expected, step);
    doing = "MPI_Neighbor_allgatherv",
    check(gathered_v + (size_t)gathered_places[i] * s, from, 0, from < 0 ? 0 : count + from, step);
    doing = "MPI_Neighbor_alltoall", check(in + (size_t)i * n * s, from, rank, expected, step);
    doing = "MPI_Neighbor_alltoallv", check(in_v + (size_t)in_places[i] * s, from, rank, from < 0 ? 0 : in_counts[i], step);
    doing = "MPI_Neighbor_alltoallw", check(in_w + (size_t)in_places[i] * s, from, rank, from < 0 ? 0 : in_counts[i], step);
  }
  int* buffers[] = {own, gathered, gathered_v, out, in, out_v, in_v, in_w};
  for (size_t index = 0; index < sizeof buffers / sizeof *buffers; ++index) {
    free(buffers[index]);
  }
  if (step != 1) {
    MPI_Type_free(&type);
  }
}

static void all_neighborhoods(int count, int step) {
  for (int blocking = 0; blocking < 2; ++blocking) {
    for (int periodic = 0; periodic < 2; ++periodic) { /* grids of one and two dimensions */
      for (int dimensions = 1; dimensions <= 2; ++dimensions) {
        int extents[2] = {0, 0}, periods[2] = {periodic, 0}, neighbors[4], two_edges = 0;
        MPI_Comm grid;
        MPI_Dims_create(size, dimensions, extents);
        MPI_Cart_create(MPI_COMM_WORLD, dimensions, extents, periods, 0, &grid);
        for (int d = 0; d < dimensions; ++d) {
          MPI_Cart_shift(grid, d, 1, &neighbors[2 * d], &neighbors[2 * d + 1]);
          two_edges |= periods[d] && extents[d] <= 2;
        }
        neighborhood(grid, !two_edges, 2 * dimensions, neighbors, 2 * dimensions, neighbors, count, step, blocking);
        MPI_Comm_free(&grid);
      }
    }
    /* A star: rank 0 knows everybody, and itself. */
    int index[MOST], edges[2 * MOST], used = 0, everybody[MOST], centre = 0;
    for (int r = 0; r < size; ++r) {
      edges[used++] = r;
      everybody[r] = r;
    }
    index[0] = used;
    for (int r = 1; r < size; ++r) {
      edges[used++] = 0;
      index[r] = used;
    }
    MPI_Comm star;
    MPI_Graph_create(MPI_COMM_WORLD, size, index, edges, 0, &star);
    neighborhood(star, 1, rank == 0 ? size : 1, rank == 0 ? everybody : &centre, rank == 0 ? size : 1,
                 rank == 0 ? everybody : &centre, count, step, blocking);
    MPI_Comm_free(&star);
    /* Directed edges: everybody sends to the next two; rank 0 gets nothing (only if there are enough ranks). */
    int from[2] = {0}, to[2] = {0}, sources = 0, destinations = 0;
    for (int ahead = 1; ahead <= 2 && size > 2; ++ahead) {
      if (rank != 0) {
        from[sources++] = (rank - ahead + size) % size;
      }
      if ((rank + ahead) % size != 0) {
        to[destinations++] = (rank + ahead) % size;
      }
    }
    MPI_Comm directed, again;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, sources, from, MPI_UNWEIGHTED, destinations, to, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &directed);
    neighborhood(directed, 1, sources, from, destinations, to, count, step, blocking);
    MPI_Comm_dup(directed, &again); /* a copy has the edges too */
    neighborhood(again, 1, sources, from, destinations, to, count, step, blocking);
    MPI_Comm_free(&again);
    MPI_Comm_free(&directed);
  }
}

/* A chain of directed edges: its ends have no neighbours on one side, and pass nothing there. A status that says "complete"
 * means that the result is there and that the operand may be overwritten. */
static void ends_of_a_chain(void) {
  const int sources = rank > 0, destinations = rank < size - 1, from = rank - 1, to = rank + 1, five = 5, at = 0;
  int out[5], in[5] = {0}, known = 0, one = rank, sum = -1;
  MPI_Comm chain;
  MPI_Request request;
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, sources, &from, MPI_UNWEIGHTED, destinations, &to, MPI_UNWEIGHTED,
                                 MPI_INFO_NULL, 0, &chain);
  doing = "MPI_Neighbor_alltoallv along a chain";
  put(out, rank, 3, 5, 1);
  MPI_Neighbor_alltoallv(destinations ? out : NULL, destinations ? &five : NULL, destinations ? &at : NULL, MPI_INT,
                         sources ? in : NULL, sources ? &five : NULL, sources ? &at : NULL, MPI_INT, chain);
  check(in, from, 3, sources ? 5 : 0, 1);
  memset(in, 0, sizeof in);
  MPI_Ineighbor_allgatherv(out, 5, MPI_INT, sources ? in : NULL, sources ? &five : NULL, sources ? &at : NULL, MPI_INT, chain,
                           &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  check(in, from, 3, sources ? 5 : 0, 1);
  MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, chain, &request);
  while (!known) {
    MPI_Request_get_status(request, &known, MPI_STATUS_IGNORE);
  }
  one = 1000000;
  doing = "MPI_Iallreduce, known by its status";
  if (sum != size * (size - 1) / 2) {
    fail(1, 0, sum, size * (size - 1) / 2);
  }
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  if (sum != size * (size - 1) / 2) {
    fail(1, 0, sum, size * (size - 1) / 2);
  }
  MPI_Comm_free(&chain);
  started += 2;
  neighborhoods += 1;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  static const int sizes[] = {0, 1, 2, 100, 127, 129, 1500, 4096, 70000, 300000};
  const int last = argc > 1 ? atoi(argv[1]) : (int)(sizeof sizes / sizeof *sizes);
  for (int s = 0; s < last; ++s) {
    for (int step = 1; step <= GAP; step += GAP - 1) {
      everything_at_once(sizes[s], step, (s + step) % size, (s + step) % 4);
      if (sizes[s] > 0) {
        all_neighborhoods(sizes[s], step);
      }
    }
  }
  ends_of_a_chain();
  if (rank == 0) {
    printf("nonblocking ok %ld %ld\n", started, neighborhoods);
  }
  MPI_Finalize();
  return 0;
}
