/* Collective calls: content of every one, many sizes, with and without gaps, in place, by every root, on MPI_COMM_WORLD and on
 * a communicator with the ranks turned round. Prints "collectives ok", how many calls were made that direct messages serve, and
 * how many reductions depend on the order of folding (sums of reals do not between two ranks). Arguments: "direct" if those are
 * to be in the order of the ranks, "passed" if the calls are the library's: Open MPI's wants a datatype also where there is
 * nothing to send. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numbered_integers.h"

static int in_rank_order;
static long served, ordered;
static MPI_Comm comm;
static MPI_Datatype gaps; /* one integer of GAP */

/* A buffer of `parts` parts of `count` integers, `step` apart, all -1. */
static int* make(int parts, int count, int step) {
  const size_t room = ((size_t)parts * (size_t)count * (size_t)step + 1) * sizeof(int);
  int* buffer = malloc(room);
  memset(buffer, 0xff, room);
  return buffer;
}

/* Bcast, Gather(v), Scatter(v) by `root`; `step` is that of the root's side. */
static void rooted(int root, int count, int step) {
  const MPI_Datatype at_root = step == 1 ? MPI_INT : gaps;
  const int mine = rank == root ? step : 1;
  const MPI_Datatype type = rank == root ? at_root : MPI_INT;
  doing = "MPI_Bcast";
  int* one = make(1, count, mine);
  if (rank == root) {
    put(one, root, 0, count, mine);
  }
  MPI_Bcast(one, count, type, root, comm);
  check(one, root, 0, count, mine);
  free(one);
  for (int in_place = 0; in_place < 2; ++in_place) {
    for (int v = 0; v < 2; ++v) {
      /* In the forms with counts rank r has r + count integers, in the order of descending ranks. */
      int counts[64], displacements[64];
      int total = 0;
      for (int r = size - 1; r >= 0; --r) {
        counts[r] = v ? count + r : count;
        displacements[r] = v ? total : r * count;
        total += counts[r];
      }
      int* own = make(1, counts[rank], 1);
      int* all = make(1, total, step);
      doing = v ? "MPI_Gatherv" : "MPI_Gather";
      put(own, rank, root, counts[rank], 1);
      if (in_place && rank == root) {
        put(all + displacements[rank] * step, rank, root, counts[rank], step);
      }
      const void* from = in_place && rank == root ? MPI_IN_PLACE : own;
      if (v) {
        MPI_Gatherv(from, counts[rank], MPI_INT, all, counts, displacements, at_root, root, comm);
      } else {
        MPI_Gather(from, count, MPI_INT, all, count, at_root, root, comm);
      }
      for (int r = 0; r < size && rank == root; ++r) {
        check(all + displacements[r] * step, r, root, counts[r], step);
      }
      doing = v ? "MPI_Scatterv" : "MPI_Scatter";
      for (int r = 0; r < size; ++r) {
        put(all + displacements[r] * step, root, r, counts[r], step);
      }
      memset(own, 0xff, (size_t)counts[rank] * sizeof(int));
      void* into = in_place && rank == root ? MPI_IN_PLACE : own;
      if (v) {
        MPI_Scatterv(all, counts, displacements, at_root, into, counts[rank], MPI_INT, root, comm);
      } else {
        MPI_Scatter(all, count, at_root, into, count, MPI_INT, root, comm);
      }
      if (into == own) {
        check(own, root, rank, counts[rank], 1);
      }
      free(own);
      free(all);
    }
  }
  served += 1 + 4 * 2;
}

static void all_to_all(int count, int step) {
  const MPI_Datatype type = step == 1 ? MPI_INT : gaps;
  for (int in_place = 0; in_place < 2; ++in_place) {
    for (int v = 0; v < 3; ++v) {
      /* With counts: rank r sends count + r + s to rank s, which is the same both ways. */
      int counts[64], displacements[64], bytes[64];
      MPI_Datatype types[64], plain[64];
      int total = 0;
      for (int r = size - 1; r >= 0; --r) {
        counts[r] = v ? count + r + rank : count;
        displacements[r] = v ? total : r * count;
        total += counts[r];
        types[r] = type;
        plain[r] = MPI_INT;
        bytes[r] = displacements[r] * (int)sizeof(int);
      }
      int* out = make(1, total, 1);
      int* in = make(1, total, step);
      int wide[64];
      for (int r = 0; r < size; ++r) {
        put(out + displacements[r], rank, r, counts[r], 1);
        if (in_place) {
          put(in + displacements[r] * step, rank, r, counts[r], step);
        }
        wide[r] = bytes[r] * step;
      }
      const void* from = in_place ? MPI_IN_PLACE : out;
      doing = v == 0 ? "MPI_Alltoall" : v == 1 ? "MPI_Alltoallv" : "MPI_Alltoallw";
      if (v == 0) {
        MPI_Alltoall(from, count, MPI_INT, in, count, type, comm);
      } else if (v == 1) {
        MPI_Alltoallv(from, counts, displacements, MPI_INT, in, counts, displacements, type, comm);
      } else {
        MPI_Alltoallw(from, counts, bytes, plain, in, counts, wide, types, comm);
      }
      for (int r = 0; r < size; ++r) {
        check(in + displacements[r] * step, r, rank, counts[r], step);
      }
      if (v < 2) {
        doing = v ? "MPI_Allgatherv" : "MPI_Allgather";
        total = 0;
        for (int r = size - 1; r >= 0; --r) {
          counts[r] = v ? count + r : count;
          displacements[r] = v ? total : r * count;
          total += counts[r];
        }
        int* all = make(1, total, step);
        int* own = make(1, counts[rank], 1);
        put(own, rank, 0, counts[rank], 1);
        if (in_place) {
          put(all + displacements[rank] * step, rank, 0, counts[rank], step);
        }
        if (v) {
          MPI_Allgatherv(in_place ? MPI_IN_PLACE : own, counts[rank], MPI_INT, all, counts, displacements, type, comm);
        } else {
          MPI_Allgather(in_place ? MPI_IN_PLACE : own, count, MPI_INT, all, count, type, comm);
        }
        for (int r = 0; r < size; ++r) {
          check(all + displacements[r] * step, r, 0, counts[r], step);
        }
        free(all);
        free(own);
      }
      free(out);
      free(in);
    }
  }
  served += 2 * (3 + 2);
}

/* Rank 0 sends one integer to the last; all other parts have no elements, and no datatype. */
static void parts_without_datatype(void) {
  int out[64], in[64], places[64];
  MPI_Datatype out_types[64], in_types[64];
  for (int r = 0; r < size; ++r) {
    out[r] = rank == 0 && r == size - 1;
    in[r] = r == 0 && rank == size - 1;
    out_types[r] = out[r] ? MPI_INT : MPI_DATATYPE_NULL;
    in_types[r] = in[r] ? MPI_INT : MPI_DATATYPE_NULL;
    places[r] = 0;
  }
  doing = "MPI_Alltoallw without datatypes";
  int number = value(0, 1, 5), got = -1;
  MPI_Alltoallw(&number, out, places, out_types, &got, in, places, in_types, comm);
  const int expected = rank == size - 1 ? number : -1;
  if (got != expected) {
    fail(1, 0, got, expected);
  }
  ++served;
}

/* Composition of x -> a x + b, which is associative and not commutative: pairs (a, b). */
static void compose(void* in, void* inout, int* count, MPI_Datatype* datatype) {
  (void)datatype;
  const unsigned* left = in;
  unsigned* right = inout;
  for (int i = 0; i < *count; ++i) {
    const unsigned a = left[2 * i] * right[2 * i], b = left[2 * i] * right[2 * i + 1] + left[2 * i + 1];
    right[2 * i] = a;
    right[2 * i + 1] = b;
  }
}

typedef enum { SUM, LARGEST, COMPOSED, REALS, PLACES } Kind;
typedef struct {
  double value;
  int place;
} Place; /* MPI_DOUBLE_INT: with a gap at its end */

/* What the ranks `first` to `last` give for element i. Reals are folded from the last, in a scan from the first. */
static void expected(Kind kind, int first, int last, int i, int scans, unsigned* pair, double* real) {
  unsigned sum = 0, largest = 0, a = 1, b = 0;
  double reals = 0;
  for (int r = last; r >= first; --r) {
    const unsigned x = (unsigned)value(r, 3, i);
    sum += x;
    largest = x > largest ? x : largest;
    b = x * b + (x + 5);
    a = x * a;
    const unsigned y = scans ? (unsigned)value(first + last - r, 3, i) : x;
    reals = r == last ? 1.0 / (double)(y + 1) : 1.0 / (double)(y + 1) + reals;
  }
  pair[0] = kind == SUM ? sum : kind == LARGEST ? largest : a;
  pair[1] = b;
  *real = reals;
}

/* Few values, so that ranks have the same and the lowest must be named. */
static double value_of_place(int of, int i) { return (double)((unsigned)value(of, 3, i) % 5) - 2; }

static void check_place(const Place* got, int first, int last, int i, int count) {
  int lowest = first;
  for (int r = first + 1; r <= last; ++r) {
    lowest = value_of_place(r, i) < value_of_place(lowest, i) ? r : lowest;
  }
  if (got->value != value_of_place(lowest, i) || got->place != lowest) {
    fail(count, i, (unsigned)got->place, (unsigned)lowest);
  }
}

static void put_operand(Kind kind, void* at, int i) {
  const unsigned x = (unsigned)value(rank, 3, i);
  if (kind == PLACES) {
    ((Place*)at)[i].value = value_of_place(rank, i);
    ((Place*)at)[i].place = rank;
  } else if (kind == REALS) {
    ((double*)at)[i] = 1.0 / (double)(x + 1);
  } else if (kind == COMPOSED) {
    ((unsigned*)at)[2 * i] = x;
    ((unsigned*)at)[2 * i + 1] = x + 5;
  } else {
    ((unsigned*)at)[i] = x;
  }
}

static void check_result(Kind kind, const void* at, int first, int last, int begin, int count) {
  for (int i = 0; i < count; ++i) {
    unsigned pair[2];
    double real;
    expected(kind, first, last, begin + i, strstr(doing, "can") != NULL, pair, &real);
    if (kind == PLACES) {
      check_place((const Place*)at + i, first, last, begin + i, count);
    } else if (kind == REALS) {
      const double got = ((const double*)at)[i], difference = got > real ? got - real : real - got;
      if (in_rank_order || last - first < 2 ? got != real : difference > 1e-12 * real) {
        fprintf(stderr, "rank %d: %s of %d: %a instead of %a\n", rank, doing, count, got, real);
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
    } else if (kind == COMPOSED) {
      const unsigned* got = (const unsigned*)at + 2 * i;
      if (got[0] != pair[0] || got[1] != pair[1]) {
        fail(count, i, got[1], pair[1]);
      }
    } else if (((const unsigned*)at)[i] != pair[0]) {
      fail(count, i, ((const unsigned*)at)[i], pair[0]);
    }
  }
}

static void reductions(Kind kind, MPI_Datatype type, MPI_Op op, int count) {
  const size_t wide = kind == PLACES ? sizeof(Place) : kind == REALS || kind == COMPOSED ? 8 : 4;
  long calls = 0;
  for (int in_place = 0; in_place < 2; ++in_place) {
    const size_t room = ((size_t)count * (size_t)size + 64 * 64) * wide;
    char* own = malloc(room);
    char* result = malloc(room);
    const void* from = in_place ? MPI_IN_PLACE : (void*)own;
    void* const operand = in_place ? result : own;
#define FRESH(n)                              \
  memset(result, 0xff, room);                 \
  for (int fresh = 0; fresh < (n); ++fresh) { \
    put_operand(kind, operand, fresh);        \
  }
    doing = "MPI_Allreduce";
    FRESH(count)
    MPI_Allreduce(from, result, count, type, op, comm);
    check_result(kind, result, 0, size - 1, 0, count);
    for (int root = 0; root < size; root += size - 1) {
      doing = "MPI_Reduce";
      FRESH(count)
      for (int i = 0; i < count; ++i) {
        put_operand(kind, own, i);
      }
      MPI_Reduce(rank == root ? from : own, result, count, type, op, root, comm);
      if (rank == root) {
        check_result(kind, result, 0, size - 1, 0, count);
      }
      ++calls;
    }
    doing = "MPI_Scan";
    FRESH(count)
    MPI_Scan(from, result, count, type, op, comm);
    check_result(kind, result, 0, rank, 0, count);
    doing = "MPI_Exscan";
    FRESH(count)
    MPI_Exscan(from, result, count, type, op, comm);
    if (rank > 0) {
      check_result(kind, result, 0, rank - 1, 0, count);
    }
    doing = "MPI_Reduce_scatter_block";
    FRESH(count * size)
    MPI_Reduce_scatter_block(from, result, count, type, op, comm);
    check_result(kind, result, 0, size - 1, count * rank, count);
    doing = "MPI_Reduce_scatter";
    int counts[64], begin = 0, total = 0;
    for (int r = 0; r < size; ++r) {
      counts[r] = r % 3 == 1 ? 0 : count / (r + 1) + r;
      begin += r < rank ? counts[r] : 0;
      total += counts[r];
    }
    FRESH(total)
    MPI_Reduce_scatter(from, result, counts, type, op, comm);
    check_result(kind, result, 0, size - 1, begin, counts[rank]);
    calls += 5;
    free(own);
    free(result);
  }
  *((kind == REALS && size > 2) || kind == COMPOSED ? &ordered : &served) += calls;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int world_rank, world_size;
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  in_rank_order = argc > 1 && strcmp(argv[1], "direct") == 0;
  const int rounds = argc > 2 ? atoi(argv[2]) : 1;
  MPI_Comm turned;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &turned);
  MPI_Datatype pair;
  MPI_Op composition;
  MPI_Type_contiguous(2, MPI_UNSIGNED, &pair);
  MPI_Type_commit(&pair);
  MPI_Op_create(compose, 0, &composition);
  MPI_Datatype one;
  MPI_Type_create_resized(MPI_INT, 0, GAP * (MPI_Aint)sizeof(int), &one);
  MPI_Type_dup(one, &gaps);
  MPI_Type_commit(&gaps);
  const int counts[] = {0, 1, 3, 127, 128, 129, 1025, 4097, 16384, 70000};
  for (int round = 0; round < rounds; ++round) {
    for (int which = 0; which < 2; ++which) {
      comm = which == 0 ? MPI_COMM_WORLD : turned;
      MPI_Comm_rank(comm, &rank);
      MPI_Comm_size(comm, &size);
      for (size_t index = 0; index < sizeof counts / sizeof *counts; ++index) {
        for (int step = 1; step <= GAP; step += GAP - 1) {
          for (int root = 0; root < size; root += size - 1) {
            rooted(root, counts[index], step);
          }
          all_to_all(counts[index], step);
        }
        MPI_Barrier(comm);
        ++served;
        if (argc <= 1 || strcmp(argv[1], "passed") != 0) {
          parts_without_datatype();
        }
        reductions(SUM, MPI_UNSIGNED, MPI_SUM, counts[index]);
        reductions(LARGEST, MPI_UNSIGNED, MPI_MAX, counts[index]);
        reductions(PLACES, MPI_DOUBLE_INT, MPI_MINLOC, counts[index]);
        reductions(COMPOSED, pair, composition, counts[index]);
        reductions(REALS, MPI_DOUBLE, MPI_SUM, counts[index]);
      }
    }
  }
  if (world_rank == 0) {
    printf("collectives ok %ld %ld\n", served, ordered);
  }
  MPI_Type_free(&gaps);
  MPI_Type_free(&one);
  MPI_Type_free(&pair);
  MPI_Op_free(&composition);
  MPI_Comm_free(&turned);
  MPI_Finalize();
  return 0;
}
