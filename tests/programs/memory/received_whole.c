/* Rank 1 gets what fills an array of MIB whole, in pieces of KIB, while that array is on storage; what lies around it stays.
   Prints "wrong 0", and the MiB that rank 1 read from storage meanwhile.
   usage: received_whole MIB KIB HOW: send, isend: a message, one that does not wait; bcast: one's broadcast; allgather: the
   halves of both; alltoall: each one's half for the other; get: from rank 0's window; reduce, allreduce, scan: what both
   give, bit by bit; operation: the same by an operation of the program's, which the library does. */
#include <headroom/headroom.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kAround = 100, kRounds = 3, kFillers = 3 };

static uint64_t bytes_read(void) {
  struct headroom_statistics now = {.size = sizeof now};
  return headroom_read_statistics != NULL && headroom_read_statistics(&now) == 0 ? now.read_bytes : 0;
}

static unsigned char expected(uint64_t at, int round) { return (unsigned char)(at * 7 + at / 4096 + (uint64_t)round * 31); }

static int rank;

/* Of each rank `half` bytes, as they are expected from `at` on in what both give. */
static void collect(const char* how, unsigned char* to, uint64_t at, int half, int round) {
  unsigned char* mine = malloc(2 * (size_t)half);
  for (int each = 0; each < half; ++each) {
    mine[each] = expected(at + (uint64_t)rank * (uint64_t)half + (uint64_t)each, round);
  }
  memcpy(mine + half, mine, (size_t)half);
  if (how[3] == 'g') {
    MPI_Allgather(mine, half, MPI_BYTE, to, half, MPI_BYTE, MPI_COMM_WORLD);
  } else {
    MPI_Alltoall(mine, half, MPI_BYTE, to, half, MPI_BYTE, MPI_COMM_WORLD);
  }
  free(mine);
}

static void or_bytes(void* from, void* into, int* count, MPI_Datatype* datatype) {
  (void)datatype;
  for (int at = 0; at < *count; ++at) {
    ((unsigned char*)into)[at] |= ((unsigned char*)from)[at];
  }
}

/* Rank 0's content: rank 1 gives nothing, or the same. */
static void reduce(const char* how, unsigned char* to, uint64_t at, int count, int round) {
  unsigned char* mine = calloc(1, (size_t)count);
  for (int each = 0; each < count && (rank == 0 || how[0] == 'r'); ++each) {
    mine[each] = expected(at + (uint64_t)each, round);
  }
  if (strcmp(how, "reduce") == 0) {
    MPI_Reduce(mine, to, count, MPI_BYTE, MPI_BOR, 1, MPI_COMM_WORLD);
  } else if (strcmp(how, "allreduce") == 0) {
    MPI_Allreduce(mine, to, count, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
  } else if (strcmp(how, "scan") == 0) {
    MPI_Scan(mine, to, count, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
  } else {
    MPI_Op operation;
    MPI_Op_create(or_bytes, 1, &operation);
    MPI_Allreduce(mine, to, count, MPI_BYTE, operation, MPI_COMM_WORLD);
    MPI_Op_free(&operation);
  }
  free(mine);
}

static void move(const char* how, unsigned char* array, uint64_t at, int count, int round, MPI_Win window) {
  unsigned char* place = array + at;
  if (strcmp(how, "send") == 0) {
    if (rank == 0) {
      MPI_Send(place, count, MPI_BYTE, 1, 7, MPI_COMM_WORLD);
    } else {
      MPI_Recv(place, count, MPI_BYTE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  } else if (strcmp(how, "isend") == 0) {
    MPI_Request request;
    if (rank == 0) {
      MPI_Isend(place, count, MPI_BYTE, 1, 7, MPI_COMM_WORLD, &request);
    } else {
      MPI_Irecv(place, count, MPI_BYTE, 0, 7, MPI_COMM_WORLD, &request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else if (strcmp(how, "bcast") == 0) {
    MPI_Bcast(place, count, MPI_BYTE, 0, MPI_COMM_WORLD);
  } else if (strcmp(how, "get") == 0) {
    MPI_Win_lock_all(0, window);
    if (rank == 1) {
      MPI_Get(place, count, MPI_BYTE, 0, (MPI_Aint)at, count, MPI_BYTE, window);
    }
    MPI_Win_unlock_all(window);
  } else if (strstr(how, "reduce") != NULL || strcmp(how, "scan") == 0 || strcmp(how, "operation") == 0) {
    reduce(how, place, at, count, round);
  } else {
    collect(how, place, at, count / 2, round);
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const uint64_t bytes = argc > 3 ? strtoull(argv[1], NULL, 10) << 20 : 0,
                 piece = argc > 3 ? strtoull(argv[2], NULL, 10) << 10 : 1;
  unsigned char *array = malloc(bytes + 2 * kAround), *filler = malloc(bytes * kFillers);
  memset(array, 0xab, bytes + 2 * kAround);
  MPI_Win window = MPI_WIN_NULL;
  if (argc > 3 && strcmp(argv[3], "get") == 0) {
    MPI_Win_create(array + kAround, (MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  }
  uint64_t wrong = 0, read = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (uint64_t at = 0; rank == 0 && at < bytes; ++at) {
      array[kAround + at] = expected(at, round);
    }
    memset(filler, round + 1, bytes * kFillers);
    MPI_Barrier(MPI_COMM_WORLD);
    const uint64_t before = bytes_read();
    for (uint64_t at = 0; at < bytes; at += piece) {
      const int count = (int)(piece < bytes - at ? piece : bytes - at);
      move(argv[3], array + kAround, at, count, round, window);
    }
    read += bytes_read() - before;
    MPI_Barrier(MPI_COMM_WORLD); /* nobody changes what another one may still be getting */
    for (uint64_t at = 0; at < bytes; ++at) {
      wrong += array[kAround + at] != expected(at, round);
    }
    for (uint64_t at = 0; at < kAround; ++at) {
      wrong += (array[at] != 0xab) + (array[kAround + bytes + at] != 0xab);
    }
  }
  uint64_t all_wrong = 0, receiver_read = read;
  MPI_Reduce(&wrong, &all_wrong, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  MPI_Bcast(&receiver_read, 1, MPI_UINT64_T, 1, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("read %llu\nwrong %llu\n", (unsigned long long)(receiver_read >> 20), (unsigned long long)all_wrong);
  }
  if (window != MPI_WIN_NULL) {
    MPI_Win_free(&window);
  }
  free(filler);
  free(array);
  MPI_Finalize();
  return wrong != 0;
}
