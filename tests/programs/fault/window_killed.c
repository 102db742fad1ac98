/* Puts and sums under locks, without end, until one rank is killed. Arguments: the rank; microseconds after which it is, or
 * "holding": while it holds what the others wait for; mebibytes of each rank's part. */
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static void die(int signal_number) {
  (void)signal_number;
  kill(getpid(), SIGKILL);
}

int main(int argc, char** argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int length = (atoi(argv[3]) << 20) / (int)sizeof(int64_t);
  int64_t* mine = calloc((size_t)length, sizeof(int64_t));
  int64_t* part;
  MPI_Win window;
  MPI_Win_allocate((MPI_Aint)length * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &part, &window);
  memset(part, 0, (size_t)length * 8);
  MPI_Barrier(MPI_COMM_WORLD);
  const int dies = rank == atoi(argv[1]);
  if (dies && strcmp(argv[2], "holding") == 0) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
    kill(getpid(), SIGKILL);
  } else if (dies) {
    signal(SIGALRM, die);
    const long after = atol(argv[2]);
    const struct itimerval timer = {{0, 0}, {after / 1000000, after % 1000000}};
    setitimer(ITIMER_REAL, &timer, NULL);
  } else if (strcmp(argv[2], "holding") == 0) {
    usleep(100000);
  }
  for (int round = 0;; ++round) {
    const int target = (rank + round) % size, count = round % 2 == 0 ? 100 : length;
    MPI_Win_lock(round % 3 == 0 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, target, 0, window);
    MPI_Accumulate(mine, count, MPI_INT64_T, target, 0, count, MPI_INT64_T, MPI_SUM, window);
    MPI_Get(mine, count, MPI_INT64_T, target, 0, count, MPI_INT64_T, window);
    MPI_Win_unlock(target, window);
    if (round % 16 == 0) {
      MPI_Win_fence(0, window);
    }
  }
}
