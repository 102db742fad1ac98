/* Rank 0 looks at a window again and again until rank 1 has changed it, which before that waits until rank 0 has received a
 * message: whatever a program polls a window with, its messages must get on. Prints "ok". */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { WAYS = 5 };

int main(int argc, char** argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Win window;
  volatile int64_t* flag;
  const int64_t one = 1;
  MPI_Win_allocate(4096, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &flag, &window);
  for (int way = 0; way < WAYS; ++way) {
    flag[0] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
      int number = way;
      MPI_Ssend(&number, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
      MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
      MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_SUM, window);
      MPI_Win_unlock(0, window);
    } else if (rank == 0) {
      int number = -1;
      int64_t seen = 0;
      MPI_Request request;
      MPI_Irecv(&number, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, &request);
      if (way < 4) {
        MPI_Win_lock_all(0, window);
      }
      while (seen == 0) {
        if (way == 0) {
          MPI_Fetch_and_op(NULL, &seen, MPI_INT64_T, 0, 0, MPI_NO_OP, window);
          MPI_Win_flush(0, window);
        } else if (way == 1) {
          MPI_Request got;
          MPI_Rget(&seen, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, window, &got);
          MPI_Wait(&got, MPI_STATUS_IGNORE);
        } else if (way == 2) {
          MPI_Win_sync(window);
          seen = flag[0];
        } else if (way == 3) {
          MPI_Win_flush(0, window);
          seen = flag[0];
        } else {
          MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
          seen = flag[0];
          MPI_Win_unlock(0, window);
        }
      }
      if (way < 4) {
        MPI_Win_unlock_all(window);
      }
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      if (number != way) {
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Win_free(&window);
  if (rank == 0) {
    printf("ok\n");
  }
  MPI_Finalize();
  return 0;
}
