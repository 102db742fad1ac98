/* A program that knows sessions only, not MPI_COMM_WORLD: a communicator of all processes, reductions and messages on it while
   memory is touched. Prints "session ok". usage: session MIB */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  const size_t bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 8) << 20;
  MPI_Session session;
  MPI_Group group;
  MPI_Comm comm;
  int rank, ranks, wrong = 0;
  MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
  MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
  MPI_Comm_create_from_group(group, "headroom-test", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
  MPI_Group_free(&group);
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  unsigned char* memory = malloc(bytes);
  memset(memory, rank, bytes);
  unsigned char* other = malloc(bytes);
  for (int round = 0; round < 20; ++round) {
    int one = rank + round, sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    wrong += sum != ranks * (ranks - 1) / 2 + ranks * round;
    for (size_t at = 0; at < bytes; at += 4096) {
      wrong += memory[at] != (unsigned char)(rank + round);
      memory[at]++;
    }
    if (round % 5 == 0) {
      const int from = (rank + ranks - 1) % ranks;
      MPI_Sendrecv(memory, (int)bytes, MPI_BYTE, (rank + 1) % ranks, round, other, (int)bytes, MPI_BYTE, from, round, comm,
                   MPI_STATUS_IGNORE);
      for (size_t at = 0; at < bytes; at += 4096) {
        wrong += other[at] != (unsigned char)(from + round + 1) || other[at + 1] != (unsigned char)from;
      }
    }
  }
  MPI_Barrier(comm);
  if (rank == 0 && wrong == 0) {
    printf("session ok\n");
  }
  free(memory);
  free(other);
  MPI_Comm_free(&comm);
  MPI_Session_finalize(&session);
  return wrong != 0;
}
