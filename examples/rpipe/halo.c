/* Jacobi's iteration on a square, divided by rows among the ranks: each needs the row above and the row below its own from its
 * neighbours, in every iteration. Three ways: pipes, where a neighbour's row is used where it is; messages, which copy it into
 * a row of one's own; windows, which put it there between fences. All give the same numbers.
 *
 * usage: mpiexec -n RANKS halo pipes|messages|windows SIDE ITERATIONS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headroom/rpipe.h>

enum { kAbove, kBelow, kSides };

static int self, ranks, side, rows;
static int neighbour[kSides]; /* or -1 */
static double *grid, *next;   /* rows, without the neighbours' */
static double* row_of(double* of, int row) { return of + (size_t)row * (size_t)side; }

static void need(int error, const char* call) {
  if (error != 0) {
    fprintf(stderr, "rank %d: %s: %s\n", self, call, rpipe_error(error));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

/* One iteration, with the neighbours' rows; beyond the square it is 1 above and 0 elsewhere. */
static double iterate(const double* above, const double* below) {
  double change = 0;
  for (int row = 0; row < rows; ++row) {
    const double* up = row > 0 ? row_of(grid, row - 1) : above;
    const double* down = row < rows - 1 ? row_of(grid, row + 1) : below;
    const double* here = row_of(grid, row);
    double* to = row_of(next, row);
    for (int column = 0; column < side; ++column) {
      const double left = column > 0 ? here[column - 1] : 0;
      const double right = column < side - 1 ? here[column + 1] : 0;
      to[column] = 0.25 * (up[column] + down[column] + left + right);
      change += (to[column] - here[column]) * (to[column] - here[column]);
    }
  }
  double* const before = grid;
  grid = next;
  next = before;
  return change;
}

static double* edge(int to) { return row_of(grid, to == kAbove ? 0 : rows - 1); }

/* ---- the ways: each gives the neighbours' rows for one iteration, and takes them back ---- */

static double* outside[kSides]; /* what is beyond the square, or a row that is copied into */

static rpipe_t pipes[kSides];
static raddr_t theirs[kSides];
static void begin_pipes(void) {
  need(rpipe_init(NULL, NULL), "rpipe_init");
  for (int to = 0; to < kSides; ++to) {
    if (neighbour[to] >= 0) {
      need(rpipe_open(&pipes[to], neighbour[to], RPIPE_BOTH, NULL), "rpipe_open");
    }
  }
}
static void get_by_pipes(const double* rows_outside[kSides]) {
  const size_t bytes = (size_t)side * sizeof(double);
  for (int to = 0; to < kSides; ++to) {
    if (neighbour[to] >= 0) {
      need(rpipe_send(pipes[to], edge(to), bytes, RPIPE_FOREVER), "rpipe_send");
    }
  }
  for (int from = 0; from < kSides; ++from) {
    if (neighbour[from] >= 0) {
      need(rpipe_read(pipes[from], &theirs[from], NULL, RPIPE_FOREVER), "rpipe_read");
      rows_outside[from] = rpipe_at(theirs[from]);
    }
  }
}
static void give_back_pipes(void) {
  for (int from = 0; from < kSides; ++from) {
    if (neighbour[from] >= 0) {
      need(rpipe_free(theirs[from]), "rpipe_free");
    }
  }
}

static void get_by_messages(const double* rows_outside[kSides]) {
  MPI_Request requests[2 * kSides];
  int count = 0;
  for (int to = 0; to < kSides; ++to) {
    if (neighbour[to] >= 0) {
      MPI_Irecv(outside[to], side, MPI_DOUBLE, neighbour[to], 0, MPI_COMM_WORLD, &requests[count++]);
      MPI_Isend(edge(to), side, MPI_DOUBLE, neighbour[to], 0, MPI_COMM_WORLD, &requests[count++]);
    }
    rows_outside[to] = outside[to];
  }
  MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
}

static MPI_Win window; /* both rows */
static void get_by_windows(const double* rows_outside[kSides]) {
  MPI_Win_fence(0, window);
  for (int to = 0; to < kSides; ++to) {
    if (neighbour[to] >= 0) {
      const MPI_Aint place = to == kAbove ? side : 0; /* it is the row below the neighbour above */
      MPI_Put(edge(to), side, MPI_DOUBLE, neighbour[to], place, side, MPI_DOUBLE, window);
    }
    rows_outside[to] = outside[to];
  }
  MPI_Win_fence(0, window);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &self);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 4 || (side = atoi(argv[2])) < ranks || atoi(argv[3]) < 1) {
    fprintf(stderr, "usage: mpiexec -n RANKS halo pipes|messages|windows SIDE ITERATIONS\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const int iterations = atoi(argv[3]);
  rows = side * (self + 1) / ranks - side * self / ranks;
  neighbour[kAbove] = self - 1;
  neighbour[kBelow] = self + 1 < ranks ? self + 1 : -1;
  grid = calloc((size_t)rows * (size_t)side, sizeof(double));
  next = calloc((size_t)rows * (size_t)side, sizeof(double));
  double* const both = calloc(2 * (size_t)side, sizeof(double));
  outside[kAbove] = both;
  outside[kBelow] = both + side;
  for (int column = 0; self == 0 && column < side; ++column) {
    outside[kAbove][column] = 1;
  }
  const int by_pipes = strcmp(argv[1], "pipes") == 0, by_windows = strcmp(argv[1], "windows") == 0;
  if (by_pipes) {
    begin_pipes();
  }
  if (by_windows) {
    MPI_Win_create(both, 2 * side * (MPI_Aint)sizeof(double), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  }
  double change = 0;
  const double began = MPI_Wtime();
  for (int iteration = 0; iteration < iterations; ++iteration) {
    const double* rows_outside[kSides] = {outside[kAbove], outside[kBelow]};
    if (by_pipes) {
      get_by_pipes(rows_outside);
    } else if (by_windows) {
      get_by_windows(rows_outside);
    } else {
      get_by_messages(rows_outside);
    }
    change = iterate(rows_outside[kAbove], rows_outside[kBelow]);
    if (by_pipes) {
      give_back_pipes();
    }
  }
  const double seconds = MPI_Wtime() - began;
  double sum = 0, all[2];
  for (size_t each = 0; each < (size_t)rows * (size_t)side; ++each) {
    sum += grid[each];
  }
  const double own[2] = {sum, change};
  MPI_Reduce(own, all, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (self == 0) {
    printf("sum %.12g, change %.12g\n", all[0], all[1]);
    fprintf(stderr, "%s: %.3f us an iteration\n", argv[1], seconds / iterations * 1e6);
  }
  if (by_pipes) {
    need(rpipe_finalize(RPIPE_FOREVER), "rpipe_finalize");
  }
  if (by_windows) {
    MPI_Win_free(&window);
  }
  MPI_Finalize();
  return 0;
}
