/* Every operation that is exact in any order, on every kind of integer, and the least, the largest and their places on numbers
   with a point too, and between two ranks their sums and products: by each call that folds, against a fold of its own. Prints
   "ok" and how many collectives each rank made. usage: exact_operations */
#include <mpi.h>
#include <stdint.h>

#include "pressure.h"

enum { MOST = 3000 };
enum { MAX, MIN, SUM, PROD, LAND, BAND, LOR, BOR, LXOR, BXOR, OPERATIONS };
static int rank, ranks;
static long made;

/* Small, so that sums and products fit the smallest type; every fifth is 0. */
static int value(int of, int at, int op) {
  const int mixed = (of * 7 + at * 13 + (at >> 5)) % 5;
  return op == PROD ? (of < 2 ? 1 + at % 3 : 1) : op == SUM ? mixed % 4 : mixed * (1 + at % 9);
}

/* `by` folds `mine` into `got` for the ranks before and including, or for all: `until` is the last rank that counts. */
enum { ALLREDUCE, REDUCE, SCAN, EXSCAN, SCATTER_BLOCK, IALLREDUCE, CALLS };

static int fold(int call, void* mine, void* got, int count, MPI_Datatype type, MPI_Op op) {
  MPI_Request request;
  ++made;
  switch (call) {
    case ALLREDUCE:
      MPI_Allreduce(mine, got, count, type, op, MPI_COMM_WORLD);
      return ranks;
    case REDUCE:
      MPI_Reduce(mine, got, count, type, op, ranks - 1, MPI_COMM_WORLD);
      return rank == ranks - 1 ? ranks : 0;
    case SCAN:
      MPI_Scan(mine, got, count, type, op, MPI_COMM_WORLD);
      return rank + 1;
    case EXSCAN:
      MPI_Exscan(mine, got, count, type, op, MPI_COMM_WORLD);
      return rank;
    case SCATTER_BLOCK:
      MPI_Reduce_scatter_block(mine, got, count / ranks, type, op, MPI_COMM_WORLD);
      return ranks;
    default:
      MPI_Iallreduce(mine, got, count, type, op, MPI_COMM_WORLD, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      return ranks;
  }
}

static const int counts[] = {1, 7, 300, MOST}; /* the last is not for MPI_Iallreduce: long ones are the library's */

#define CHECK_TYPE(T, type, first_op, last_op)                                                                  \
  do {                                                                                                          \
    static T mine[MOST + 8], got[MOST + 8];                                                                     \
    const MPI_Op operations[] = {                                                                               \
        MPI_MAX, MPI_MIN, MPI_SUM, MPI_PROD, MPI_LAND, MPI_BAND, MPI_LOR, MPI_BOR, MPI_LXOR, MPI_BXOR};         \
    for (int op = first_op; op <= last_op; ++op) {                                                              \
      for (int call = 0; call < CALLS; ++call) {                                                                \
        const int most = counts[call == IALLREDUCE ? (op + call) % 3 : (op + call) % 4];                        \
        const int count = most / ranks * ranks + (call == SCATTER_BLOCK ? ranks : 1);                           \
        for (int at = 0; at < count; ++at) {                                                                    \
          mine[at] = (T)value(rank, at, op);                                                                    \
        }                                                                                                       \
        const int folded = fold(call, mine, got, count, type, operations[op]);                                  \
        const int begin = call == SCATTER_BLOCK ? count / ranks * rank : 0;                                     \
        for (int at = 0; folded > 0 && at < (call == SCATTER_BLOCK ? count / ranks : count); ++at) {            \
          long want = value(0, begin + at, op);                                                                 \
          for (int of = 1; of < folded; ++of) {                                                                 \
            want = one_more(op, want, value(of, begin + at, op));                                               \
          }                                                                                                     \
          CHECK(got[at] == (T)(folded == 1 && (op == LAND || op == LOR || op == LXOR) ? (long)got[at] : want)); \
        }                                                                                                       \
      }                                                                                                         \
    }                                                                                                           \
  } while (0)

static long one_more(int op, long a, long b) {
  switch (op) {
    case MAX:
      return a > b ? a : b;
    case MIN:
      return a < b ? a : b;
    case SUM:
      return a + b;
    case PROD:
      return a * b;
    case LAND:
      return a && b;
    case BAND:
      return a & b;
    case LOR:
      return a || b;
    case BOR:
      return a | b;
    case LXOR:
      return !a != !b;
    default:
      return a ^ b;
  }
}

#define CHECK_PLACES(T, type)                                                                     \
  do {                                                                                            \
    static struct {                                                                               \
      T number;                                                                                   \
      int place;                                                                                  \
    } mine[MOST], got[MOST];                                                                      \
    for (int largest = 0; largest < 2; ++largest) {                                               \
      for (int call = 0; call < SCATTER_BLOCK; ++call) {                                          \
        const int count = counts[(largest + call) % 4];                                           \
        for (int at = 0; at < count; ++at) {                                                      \
          mine[at].number = (T)value(rank, at, MAX);                                              \
          mine[at].place = rank;                                                                  \
        }                                                                                         \
        const int folded = fold(call, mine, got, count, type, largest ? MPI_MAXLOC : MPI_MINLOC); \
        for (int at = 0; folded > 0 && at < count; ++at) {                                        \
          int best = 0;                                                                           \
          for (int of = 1; of < folded; ++of) {                                                   \
            const int one = value(of, at, MAX), other = value(best, at, MAX);                     \
            best = (largest ? one > other : one < other) ? of : best;                             \
          }                                                                                       \
          CHECK(got[at].number == (T)value(best, at, MAX) && got[at].place == best);              \
        }                                                                                         \
      }                                                                                           \
    }                                                                                             \
  } while (0)

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  CHECK_TYPE(signed char, MPI_SIGNED_CHAR, MAX, BXOR);
  CHECK_TYPE(unsigned char, MPI_UNSIGNED_CHAR, MAX, BXOR);
  CHECK_TYPE(short, MPI_SHORT, MAX, BXOR);
  CHECK_TYPE(unsigned short, MPI_UNSIGNED_SHORT, MAX, BXOR);
  CHECK_TYPE(int, MPI_INT, MAX, BXOR);
  CHECK_TYPE(unsigned, MPI_UNSIGNED, MAX, BXOR);
  CHECK_TYPE(long, MPI_LONG, MAX, BXOR);
  CHECK_TYPE(unsigned long, MPI_UNSIGNED_LONG, MAX, BXOR);
  CHECK_TYPE(long long, MPI_LONG_LONG, MAX, BXOR);
  CHECK_TYPE(int8_t, MPI_INT8_T, MAX, BXOR);
  CHECK_TYPE(uint16_t, MPI_UINT16_T, MAX, BXOR);
  CHECK_TYPE(int32_t, MPI_INT32_T, MAX, BXOR);
  CHECK_TYPE(uint64_t, MPI_UINT64_T, MAX, BXOR);
  CHECK_TYPE(int16_t, MPI_INTEGER2, MAX, PROD);
  CHECK_TYPE(int64_t, MPI_INTEGER8, MAX, PROD);
  CHECK_TYPE(float, MPI_FLOAT, MAX, MIN);
  CHECK_TYPE(double, MPI_DOUBLE, MAX, MIN);
  CHECK_TYPE(float, MPI_REAL4, MAX, MIN);
  CHECK_TYPE(double, MPI_REAL8, MAX, MIN);
  if (ranks == 2) {
    CHECK_TYPE(float, MPI_FLOAT, SUM, PROD);
    CHECK_TYPE(double, MPI_DOUBLE, SUM, PROD);
    CHECK_TYPE(long double, MPI_LONG_DOUBLE, SUM, PROD);
    CHECK_TYPE(double, MPI_DOUBLE_PRECISION, SUM, PROD);
    CHECK_TYPE(float _Complex, MPI_C_FLOAT_COMPLEX, SUM, SUM);
    CHECK_TYPE(double _Complex, MPI_C_DOUBLE_COMPLEX, SUM, SUM);
  }
  CHECK_PLACES(int, MPI_2INT);
  CHECK_PLACES(short, MPI_SHORT_INT);
  CHECK_PLACES(long, MPI_LONG_INT);
  CHECK_PLACES(float, MPI_FLOAT_INT);
  CHECK_PLACES(double, MPI_DOUBLE_INT);
  if (rank == 0) {
    printf("ok %ld\n", made);
  }
  MPI_Finalize();
  return 0;
}
