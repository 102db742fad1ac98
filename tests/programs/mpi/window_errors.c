/* What MPI forbids in windows is an error of the window, by its error handler. Prints "ok". */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int failed = 0, handled = 0;

static void expect(const char* what, int error, int wanted) {
  int class = MPI_SUCCESS;
  MPI_Error_class(error, &class);
  if (class != wanted) {
    fprintf(stderr, "%s: error class %d, wanted %d\n", what, class, wanted);
    failed = 1;
  }
}

static void count(MPI_Win* window, int* error, ...) {
  (void)window;
  (void)error;
  ++handled;
}

int main(int argc, char** argv) {
  enum { ELEMENTS = 1 << 18 };
  int rank, size, value = 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int* part = calloc(ELEMENTS, sizeof(int));
  MPI_Win window;
  MPI_Win_create(part, ELEMENTS * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  MPI_Errhandler counting;
  MPI_Win_create_errhandler(count, &counting);
  MPI_Win_set_errhandler(window, counting);
  const int to = (rank + 1) % size;
  expect("outside of an epoch", MPI_Put(&value, 1, MPI_INT, to, 0, 1, MPI_INT, window), MPI_ERR_RMA_SYNC);
  expect("unlock", MPI_Win_unlock(to, window), MPI_ERR_RMA_SYNC);
  expect("complete", MPI_Win_complete(window), MPI_ERR_RMA_SYNC);
  expect("wait", MPI_Win_wait(window), MPI_ERR_RMA_SYNC);
  expect("flush", MPI_Win_flush(to, window), MPI_ERR_RMA_SYNC);
  MPI_Win_lock(MPI_LOCK_SHARED, to, 0, window);
  expect("in order", MPI_Put(&value, 1, MPI_INT, to, 0, 1, MPI_INT, window), MPI_SUCCESS);
  expect("another rank", MPI_Put(&value, 1, MPI_INT, size > 2 ? (rank + 2) % size : rank, 0, 1, MPI_INT, window),
         MPI_ERR_RMA_SYNC);
  expect("rank", MPI_Put(&value, 1, MPI_INT, size, 0, 1, MPI_INT, window), MPI_ERR_RANK);
  expect("count", MPI_Get(&value, 1, MPI_INT, to, 0, -1, MPI_INT, window), MPI_ERR_COUNT);
  expect("datatype", MPI_Get(&value, 1, MPI_INT, to, 0, 1, MPI_DATATYPE_NULL, window), MPI_ERR_TYPE);
  expect("beyond the end", MPI_Get(&value, 1, MPI_INT, to, ELEMENTS, 1, MPI_INT, window), MPI_ERR_RMA_RANGE);
  expect("across the end", MPI_Accumulate(&value, 1, MPI_INT64_T, to, ELEMENTS - 1, 1, MPI_INT64_T, MPI_SUM, window),
         MPI_ERR_RMA_RANGE);
  expect("before the beginning", MPI_Get(&value, 1, MPI_INT, to, -1, 1, MPI_INT, window), MPI_ERR_RMA_RANGE);
  expect("bits of doubles", MPI_Accumulate(part, 1, MPI_DOUBLE, to, 0, 1, MPI_DOUBLE, MPI_BAND, window), MPI_ERR_OP);
  expect("a sum of bytes", MPI_Accumulate(part, 1, MPI_BYTE, to, 0, 1, MPI_BYTE, MPI_SUM, window), MPI_ERR_OP);
  expect("a product of truths", MPI_Accumulate(part, 1, MPI_C_BOOL, to, 0, 1, MPI_C_BOOL, MPI_PROD, window), MPI_ERR_OP);
  expect("a sum of truths", MPI_Accumulate(part, 1, MPI_LOGICAL, to, 0, 1, MPI_LOGICAL, MPI_SUM, window), MPI_ERR_OP);
  expect("the truth of integers", MPI_Accumulate(part, 1, MPI_INTEGER, to, 0, 1, MPI_INTEGER, MPI_LAND, window), MPI_ERR_OP);
  expect("the largest complex number",
         MPI_Accumulate(part, 1, MPI_C_DOUBLE_COMPLEX, to, 0, 1, MPI_C_DOUBLE_COMPLEX, MPI_MAX, window), MPI_ERR_OP);
  expect("the place of no pair", MPI_Accumulate(part, 1, MPI_INT, to, 0, 1, MPI_INT, MPI_MAXLOC, window), MPI_ERR_OP);
  /* Datatypes that reach further than the window, of which the part that is meant does not. */
  MPI_Datatype wide, column, behind;
  MPI_Type_create_resized(MPI_INT, 0, (MPI_Aint)1 << 40, &wide);
  MPI_Type_create_subarray(2, (int[]){ELEMENTS, 2}, (int[]){2, 1}, (int[]){1, 1}, MPI_ORDER_C, MPI_INT, &column);
  MPI_Type_create_hindexed_block(1, 1, (MPI_Aint[]){-(MPI_Aint)ELEMENTS * 8}, MPI_INT, &behind);
  MPI_Type_commit(&wide);
  MPI_Type_commit(&column);
  MPI_Type_commit(&behind);
  int two[2] = {5, 6};
  expect("wide", MPI_Put(two, 1, MPI_INT, to, 7, 1, wide, window), MPI_SUCCESS);
  expect("column", MPI_Put(two, 2, MPI_INT, to, 0, 1, column, window), MPI_SUCCESS);
  expect("from behind", MPI_Put(two, 1, MPI_INT, to, 2 * ELEMENTS + 9, 1, behind, window), MPI_SUCCESS);
  expect("two wide ones", MPI_Put(two, 2, MPI_INT, to, 7, 2, wide, window), MPI_ERR_RMA_RANGE);
  int seen[10] = {0};
  MPI_Get(seen, 10, MPI_INT, to, 0, 10, MPI_INT, window);
  if (seen[7] != 5 || seen[3] != 5 || seen[5] != 6 || seen[9] != 5) {
    fprintf(stderr, "what was put is not there\n");
    failed = 1;
  }
  MPI_Type_free(&wide);
  MPI_Type_free(&column);
  MPI_Type_free(&behind);
  expect("locked twice", MPI_Win_lock(MPI_LOCK_SHARED, to, 0, window), MPI_ERR_RMA_SYNC);
  MPI_Win_unlock(to, window);
  expect("kind of lock", MPI_Win_lock(77, to, 0, window), MPI_ERR_LOCKTYPE);
  if (handled != 22) {
    fprintf(stderr, "the handler was called %d times\n", handled);
    failed = 1;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_set_errhandler(window, MPI_ERRORS_ARE_FATAL);
  MPI_Errhandler_free(&counting);
  MPI_Win_free(&window);
  free(part);
  if (!failed && rank == 0) printf("ok\n");
  MPI_Finalize();
  return failed;
}
