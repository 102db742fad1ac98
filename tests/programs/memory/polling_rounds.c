/* A token goes round; who has it sweeps its array, updates and checks it, while all others look for it again and again without
   waiting: by MPI_Test, MPI_Testany, MPI_Testsome, MPI_Request_get_status and its kin, MPI_Iprobe or MPI_Improbe, another in
   each round. They also look at what is over: at no request, and at one that is complete and is not ended. Prints "wrong 0".
   usage: polling_rounds MIB ROUNDS */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
enum { TEST, TESTANY, TESTSOME, GET_STATUS, IPROBE, IMPROBE, GET_STATUS_ALL, GET_STATUS_ANY, GET_STATUS_SOME, WAYS };
#else
enum { TEST, TESTANY, TESTSOME, GET_STATUS, IPROBE, IMPROBE, WAYS };
#endif

static MPI_Request complete;

/* The token, which is the number of the round. */
static int look_for_it(int way, int from) {
  int token = -1, flag = 0, index, indices[2], count = 0;
  MPI_Request request = MPI_REQUEST_NULL, none = MPI_REQUEST_NULL;
  MPI_Message message;
  if (way != IPROBE && way != IMPROBE) {
    MPI_Irecv(&token, 1, MPI_INT, from, 1, MPI_COMM_WORLD, &request);
  }
  MPI_Request both[2] = {complete, request};
  while (!flag) {
    switch (way) {
      case TEST:
        MPI_Test(&none, &flag, MPI_STATUS_IGNORE);
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        break;
      case TESTANY:
        MPI_Testany(1, &none, &index, &flag, MPI_STATUS_IGNORE);
        MPI_Testany(1, &request, &index, &flag, MPI_STATUS_IGNORE);
        break;
      case TESTSOME:
        MPI_Testsome(1, &none, &count, indices, MPI_STATUSES_IGNORE);
        MPI_Testsome(1, &request, &count, indices, MPI_STATUSES_IGNORE);
        flag = count == 1;
        break;
      case GET_STATUS:
        MPI_Request_get_status(both[0], &flag, MPI_STATUS_IGNORE);
        MPI_Request_get_status(both[1], &flag, MPI_STATUS_IGNORE);
        break;
      case IPROBE:
        MPI_Iprobe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        break;
      case IMPROBE:
        MPI_Improbe(from, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE);
        break;
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
      case GET_STATUS_ALL:
        MPI_Request_get_status_all(2, both, &flag, MPI_STATUSES_IGNORE);
        break;
      case GET_STATUS_ANY:
        MPI_Request_get_status_any(1, &request, &index, &flag, MPI_STATUS_IGNORE);
        break;
      case GET_STATUS_SOME:
        MPI_Request_get_status_some(2, both, &count, indices, MPI_STATUSES_IGNORE);
        MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE); /* MPICH 5.0 makes no progress where it finds one */
        flag = count == 2;
#endif
    }
  }
  if (way == IPROBE) {
    MPI_Recv(&token, 1, MPI_INT, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else if (way == IMPROBE) {
    MPI_Mrecv(&token, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
  } else {
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  return token;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const uint64_t words = argc > 2 ? strtoull(argv[1], NULL, 10) << 17 : 0;
  const int rounds = argc > 2 ? atoi(argv[2]) : 0;
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  uint64_t *array = malloc(words * 8), wrong = 0, all_wrong = 0;
  for (uint64_t i = 0; i < words; ++i) {
    array[i] = i * 31 + (uint64_t)rank;
  }
  MPI_Request self;
  char byte = 0, same = 1;
  MPI_Irecv(&same, 1, MPI_BYTE, rank, 2, MPI_COMM_WORLD, &complete);
  MPI_Isend(&byte, 1, MPI_BYTE, rank, 2, MPI_COMM_WORLD, &self);
  MPI_Wait(&self, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int round = 0; round < rounds; ++round) {
    if (rank > 0 || round > 0) {
      wrong += look_for_it((rank + round) % WAYS, from) != (rank > 0 ? round : round - 1);
    }
    for (uint64_t i = 0; i < words; ++i) {
      wrong += array[i]++ != i * 31 + (uint64_t)(rank + round);
    }
    if (rank < size - 1 || round < rounds - 1) {
      MPI_Send(&round, 1, MPI_INT, to, 1, MPI_COMM_WORLD);
    }
  }
  MPI_Wait(&complete, MPI_STATUS_IGNORE);
  MPI_Reduce(&wrong, &all_wrong, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("wrong %llu\n", (unsigned long long)all_wrong);
  }
  free(array);
  MPI_Finalize();
  return wrong != 0;
}
