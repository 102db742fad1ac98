/* One-sided communication: every call, by every way to synchronise, with content checked against a model that every rank
 * computes for itself. Arguments: MiB of each rank's part, rounds, how the windows are made: create, allocate, or stack
 * (the last rank's part is on its stack; only puts and gets then). Prints "ok PUTS GETS FOLDS": how many of each this job
 * called with something to do.
 *
 * Each rank's part is an array of 64-bit integers. Where memory is short the parts are on storage for the most part. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                   \
  do {                                                                                \
    if (!(what)) {                                                                    \
      fprintf(stderr, "rank %d: line %d: %s does not hold\n", rank, __LINE__, #what); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                   \
    }                                                                                 \
  } while (0)

static int rank, size;
static int64_t length; /* of each part, in elements */
static int64_t* part;
static MPI_Win window;
static long puts_made, gets_made, folds_made;

static int64_t value_of(int owner, int64_t index, int round) {
  return ((int64_t)owner << 48) ^ (index * 1000003) ^ ((int64_t)round << 32);
}

static void fill(int round) {
  for (int64_t index = 0; index < length; ++index) part[index] = value_of(rank, index, round);
}

/* Every rank writes its share of every part and reads another's, in a fence epoch. */
static void fences(int round) {
  const int64_t share = length / size;
  int64_t* mine = malloc(sizeof(int64_t) * (size_t)(share * size));
  MPI_Win_fence(MPI_MODE_NOPRECEDE, window);
  for (int target = 0; target < size; ++target) {
    int64_t* sent = mine + target * share;
    for (int64_t index = 0; index < share; ++index) sent[index] = value_of(target, rank * share + index, round);
    MPI_Put(sent, (int)share, MPI_INT64_T, target, rank * share, (int)share, MPI_INT64_T, window);
    ++puts_made;
  }
  MPI_Win_fence(0, window);
  for (int64_t index = 0; index < share * size; ++index) CHECK(part[index] == value_of(rank, index, round));
  const int next = (rank + 1) % size;
  MPI_Get(mine, (int)share, MPI_INT64_T, next, rank * share, (int)share, MPI_INT64_T, window);
  ++gets_made;
  MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
  for (int64_t index = 0; index < share; ++index) CHECK(mine[index] == value_of(next, rank * share + index, round));
  free(mine);
}

/* Each rank exposes its part to its neighbours and writes one piece of each of theirs, every third element. */
static void post_and_start(int round) {
  MPI_Group world, neighbours;
  const int both[2] = {(rank + 1) % size, (rank - 1 + size) % size};
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, size > 2 ? 2 : 1, both, &neighbours);
  const int64_t third = length / 3;
  const int64_t piece = third / 2;
  MPI_Datatype every_third;
  MPI_Type_vector((int)piece, 1, 3, MPI_INT64_T, &every_third);
  MPI_Type_commit(&every_third);
  fill(round);
  MPI_Win_post(neighbours, 0, window);
  MPI_Win_start(neighbours, 0, window);
  int64_t* buffers = malloc(sizeof(int64_t) * (size_t)(6 * piece + 2));
  int64_t* seen = buffers + 6 * piece;
  for (int side = 0; side < (size > 2 ? 2 : 1); ++side) {
    const int target = both[side];
    /* what comes from the left goes to the first half, from the right to the second */
    const int64_t from = (side == 0 ? 0 : piece) * 3;
    int64_t* mine = buffers + 3 * piece * side;
    for (int64_t index = 0; index < piece; ++index) mine[3 * index] = value_of(target, from + 3 * index, round + 1);
    MPI_Put(mine, 1, every_third, target, from, 1, every_third, window);
    MPI_Get(&seen[side], 1, MPI_INT64_T, target, from + 1, 1, MPI_INT64_T, window);
    ++puts_made;
    ++gets_made;
  }
  MPI_Win_complete(window);
  for (int side = 0; side < (size > 2 ? 2 : 1); ++side) {
    CHECK(seen[side] == value_of(both[side], (side == 0 ? 0 : piece) * 3 + 1, round));
  }
  if (round % 2 == 0) {
    MPI_Win_wait(window);
  } else {
    for (int done = 0; !done;) MPI_Win_test(window, &done);
  }
  for (int64_t index = 0; index < piece * 6; ++index) {
    const int written = index % 3 == 0 && (size > 2 || index < piece * 3);
    CHECK(part[index] == value_of(rank, index, written ? round + 1 : round));
  }
  free(buffers);
  MPI_Type_free(&every_third);
  MPI_Group_free(&neighbours);
  MPI_Group_free(&world);
  MPI_Barrier(MPI_COMM_WORLD);
}

/* Sums into everybody's part from everybody, of several datatypes; counters; a lock made of compare-and-swap. */
static void accumulates(int round) {
  for (int64_t index = 0; index < length; ++index) part[index] = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  const int64_t piece = length / 4;
  int64_t* mine = malloc(sizeof(int64_t) * (size_t)piece);
  for (int64_t index = 0; index < piece; ++index) mine[index] = (rank + 1) * (index + round);
  MPI_Win_lock_all(0, window);
  for (int step = 0; step < size; ++step) {
    const int target = (rank + step) % size;
    MPI_Accumulate(mine, (int)piece, MPI_INT64_T, target, 0, (int)piece, MPI_INT64_T, MPI_SUM, window);
    MPI_Request request;
    MPI_Raccumulate(mine, (int)piece, MPI_INT64_T, target, piece, (int)piece, MPI_INT64_T, MPI_MAX, window, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    folds_made += 2;
  }
  MPI_Win_flush_all(window);
  /* counters: everybody gets each number once */
  int64_t one = 1, last = -1;
  for (int turn = 0; turn < 50; ++turn) {
    int64_t before;
    MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 0, 2 * piece, MPI_SUM, window);
    MPI_Win_flush(0, window);
    CHECK(before > last && before < 50 * size);
    last = before;
    ++folds_made;
  }
  /* a lock in the last rank's part, around a plain read and write of the element beside it */
  for (int turn = 0; turn < 10; ++turn) {
    const int64_t none = 0, me = rank + 1;
    int64_t held;
    do {
      MPI_Compare_and_swap(&me, &none, &held, MPI_INT64_T, size - 1, 2 * piece + 1, window);
      MPI_Win_flush(size - 1, window);
      ++folds_made;
    } while (held != 0);
    int64_t number;
    MPI_Get(&number, 1, MPI_INT64_T, size - 1, 2 * piece + 2, 1, MPI_INT64_T, window);
    MPI_Win_flush(size - 1, window);
    ++number;
    MPI_Put(&number, 1, MPI_INT64_T, size - 1, 2 * piece + 2, 1, MPI_INT64_T, window);
    MPI_Win_flush(size - 1, window);
    MPI_Accumulate(&none, 1, MPI_INT64_T, size - 1, 2 * piece + 1, 1, MPI_INT64_T, MPI_REPLACE, window);
    MPI_Win_flush(size - 1, window);
    ++gets_made;
    ++puts_made;
    ++folds_made;
  }
  /* what was there before comes back by a request; what is complete here is seen, and buffers can be used again */
  const int next = (rank + 1) % size;
  int64_t got = -1;
  for (int turn = 0; turn < 20; ++turn) {
    MPI_Request request;
    MPI_Rget_accumulate(&one, 1, MPI_INT64_T, &got, 1, MPI_INT64_T, next, 2 * piece + 3, 1, MPI_INT64_T, MPI_SUM, window,
                        &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(got == turn);
    ++folds_made;
  }
  MPI_Win_flush(next, window);
  MPI_Get(&got, 1, MPI_INT64_T, next, 2 * piece + 3, 1, MPI_INT64_T, window);
  MPI_Win_flush_local(next, window);
  CHECK(got == 20);
  ++gets_made;
  got = 1000 + round;
  MPI_Put(&got, 1, MPI_INT64_T, next, 2 * piece + 4, 1, MPI_INT64_T, window);
  MPI_Win_flush_local_all(window);
  got = -1;
  ++puts_made;
  MPI_Win_unlock_all(window);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
  CHECK(part[2 * piece + 3] == 20 && part[2 * piece + 4] == 1000 + round);
  const int64_t sum = (int64_t)size * (size + 1) / 2;
  for (int64_t index = 0; index < piece; ++index) {
    CHECK(part[index] == sum * (index + round));
    CHECK(part[piece + index] == size * (index + round));
  }
  CHECK(rank != 0 || part[2 * piece] == 50 * size);
  CHECK(rank != size - 1 || (part[2 * piece + 1] == 0 && part[2 * piece + 2] == 10 * size));
  MPI_Win_unlock(rank, window);
  free(mine);
  MPI_Barrier(MPI_COMM_WORLD);
}

struct Pair {
  double value;
  int index;
};

/* Elements with gaps, derived datatypes of folds, fetched and not. */
static void pairs_and_vectors(int round) {
  struct Pair* theirs = (struct Pair*)part;
  const int count = 100;
  for (int index = 0; index < count; ++index) theirs[index] = (struct Pair){-1, -1};
  MPI_Barrier(MPI_COMM_WORLD);
  struct Pair mine[100], before[100];
  for (int index = 0; index < count; ++index) mine[index] = (struct Pair){(rank * 7 + index * (round + 1)) % (size * 5), rank};
  const int target = round % size;
  const int unit = (int)sizeof(int64_t);
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window);
  MPI_Get_accumulate(mine, count, MPI_DOUBLE_INT, before, count, MPI_DOUBLE_INT, target, 0, count, MPI_DOUBLE_INT, MPI_MAXLOC,
                     window);
  ++folds_made;
  MPI_Win_unlock(target, window);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int index = 0; index < count && rank == target; ++index) {
    struct Pair most = {-1, -1};
    for (int other = 0; other < size; ++other) {
      const double value = (other * 7 + index * (round + 1)) % (size * 5);
      if (value > most.value) most = (struct Pair){value, other};
    }
    CHECK(theirs[index].value == most.value && theirs[index].index == most.index);
  }
  for (int index = 0; index < count; ++index) CHECK(before[index].index < size && before[index].value < size * 5);
  MPI_Barrier(MPI_COMM_WORLD);
  /* every second double of a row, by a vector here and an indexed datatype there */
  double* numbers = (double*)part;
  for (int index = 0; index < 400; ++index) numbers[index] = index;
  MPI_Datatype vector, indexed;
  int places[50];
  for (int index = 0; index < 50; ++index) places[index] = 4 * index + 1;
  MPI_Type_vector(50, 1, 2, MPI_DOUBLE, &vector);
  MPI_Type_create_indexed_block(50, 1, places, MPI_DOUBLE, &indexed);
  MPI_Type_commit(&vector);
  MPI_Type_commit(&indexed);
  double operand[100], fetched[100];
  for (int index = 0; index < 100; ++index) operand[index] = index, fetched[index] = -5;
  MPI_Win_fence(0, window);
  MPI_Accumulate(operand, 1, vector, target, 0, 1, indexed, MPI_SUM, window);
  MPI_Win_fence(0, window);
  ++folds_made;
  for (int index = 0; index < 400 && rank == target; ++index) {
    const int summed = index % 4 == 1 && index < 200;
    CHECK(numbers[index] == index + (summed ? size * (index / 4 * 2) : 0));
  }
  MPI_Get_accumulate(NULL, 0, MPI_DOUBLE, fetched, 1, vector, target, 0, 1, indexed, MPI_NO_OP, window);
  MPI_Win_fence(0, window);
  ++folds_made;
  for (int index = 0; index < 50; ++index) {
    CHECK(fetched[2 * index] == 4 * index + 1 + size * (2 * index));
    CHECK(index == 49 || fetched[2 * index + 1] == -5);
  }
  MPI_Request request;
  MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window);
  int64_t word = 0;
  MPI_Rget(&word, 1, MPI_INT64_T, target, 3, 1, MPI_INT64_T, window, &request);
  MPI_Status status;
  MPI_Wait(&request, &status);
  ++gets_made;
  double as_double;
  memcpy(&as_double, &word, (size_t)unit);
  CHECK(as_double == 3);
  MPI_Win_unlock(target, window);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window);
  const int64_t mark = 77 + rank;
  MPI_Rput(&mark, 1, MPI_INT64_T, target, 1000 + rank, 1, MPI_INT64_T, window, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  ++puts_made;
  MPI_Win_unlock(target, window);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == target) {
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    for (int other = 0; other < size; ++other) CHECK(part[1000 + other] == 77 + other);
    MPI_Win_unlock(rank, window);
  }
  MPI_Put(NULL, 0, MPI_INT, MPI_PROC_NULL, 0, 0, MPI_INT, window);
  MPI_Type_free(&vector);
  MPI_Type_free(&indexed);
  MPI_Barrier(MPI_COMM_WORLD);
}

/* A rank waits for a flag in its own part that another sets, without any call that waits. */
static void flag(int round) {
  if (rank == 0) part[5] = -1;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock_all(0, window);
  if (rank == size - 1) {
    const int64_t set = round;
    MPI_Accumulate(&set, 1, MPI_INT64_T, 0, 5, 1, MPI_INT64_T, MPI_REPLACE, window);
    MPI_Win_flush(0, window);
    ++folds_made;
  }
  int64_t seen = -1;
  while (seen != round) {
    MPI_Fetch_and_op(NULL, &seen, MPI_INT64_T, 0, 5, MPI_NO_OP, window);
    MPI_Win_flush(0, window);
    ++folds_made;
  }
  MPI_Win_unlock_all(window);
  MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const size_t bytes = (size_t)atoi(argv[1]) << 20;
  const int rounds = atoi(argv[2]);
  const int allocate = strcmp(argv[3], "allocate") == 0, on_stack = strcmp(argv[3], "stack") == 0;
  int64_t stack[on_stack ? bytes / sizeof(int64_t) : 1];
  length = (int64_t)(bytes / sizeof(int64_t));
  if (allocate) {
    MPI_Win_allocate((MPI_Aint)bytes, sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD, &part, &window);
  } else {
    part = on_stack && rank == size - 1 ? stack : malloc(bytes);
    MPI_Win_create(part, (MPI_Aint)bytes, sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  }
  int found = 0;
  int* flavor;
  int64_t** base;
  MPI_Aint* reach;
  MPI_Win_get_attr(window, MPI_WIN_CREATE_FLAVOR, &flavor, &found);
  CHECK(found && *flavor == (allocate ? MPI_WIN_FLAVOR_ALLOCATE : MPI_WIN_FLAVOR_CREATE));
  MPI_Win_get_attr(window, MPI_WIN_BASE, &base, &found);
  CHECK(found && (int64_t*)base == part);
  MPI_Win_get_attr(window, MPI_WIN_SIZE, &reach, &found);
  CHECK(found && *reach == (MPI_Aint)bytes);
  for (int round = 0; round < rounds; ++round) {
    fences(round);
    post_and_start(round);
    if (!on_stack) {
      accumulates(round);
      pairs_and_vectors(round);
      flag(round);
    }
  }
  MPI_Win_free(&window);
  if (!allocate && part != stack) free(part);
  long all[3], mine[3] = {puts_made, gets_made, folds_made};
  MPI_Reduce(mine, all, 3, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("ok %ld %ld %ld\n", all[0], all[1], all[2]);
  MPI_Finalize();
  return 0;
}
