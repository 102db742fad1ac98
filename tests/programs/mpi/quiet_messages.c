/* Two ranks that exchange messages in batches, between each of which rank 0 calls sched_getparam() for a process that is not
   there: marks for who looks at system calls. The buffers are allocated large, as those of programs are. Prints "right 1".
   usage: quiet_messages BYTES BATCHES MESSAGES */
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 4) {
    return 2;
  }
  const int bytes = atoi(argv[1]), batches = atoi(argv[2]), messages = atoi(argv[3]);
  int rank, right = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  char* memory = malloc((size_t)4 << 20);
  memset(memory, rank, (size_t)4 << 20);
  for (int batch = 0; batch < batches; ++batch) {
    for (int message = 0; message < messages; ++message) {
      char* at = memory + (size_t)(message % 8) * 65536;
      if (rank == 0) {
        memset(at, message + 1, (size_t)bytes);
        MPI_Send(at, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(at, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        right &= at[0] == (char)message && at[bytes - 1] == (char)message;
      } else {
        MPI_Recv(at, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        right &= at[0] == (char)(message + 1) && at[bytes - 1] == (char)(message + 1);
        memset(at, message, (size_t)bytes);
        MPI_Send(at, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
      }
    }
    if (rank == 0) {
      struct sched_param nothing;
      (void)sched_getparam(0x7ffffffe, &nothing);
    }
  }
  int all = 0;
  MPI_Reduce(&right, &all, 1, MPI_INT, MPI_MIN, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("right %d\n", all);
  }
  free(memory);
  MPI_Finalize();
  return 0;
}
