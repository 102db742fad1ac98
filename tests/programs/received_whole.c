/* Rank 0 sends rank 1 what fills an array of MIB whole, in messages of KIB, while that array is on storage; what lies around it
   stays. Prints "wrong 0", and the MiB that rank 1 read from storage while it received. usage: received_whole MIB KIB */
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

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const uint64_t bytes = argc > 2 ? strtoull(argv[1], NULL, 10) << 20 : 0,
                 piece = argc > 2 ? strtoull(argv[2], NULL, 10) << 10 : 1;
  unsigned char *array = malloc(bytes + 2 * kAround), *filler = malloc(bytes * kFillers);
  memset(array, 0xab, bytes + 2 * kAround);
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
      if (rank == 0) {
        MPI_Send(array + kAround + at, count, MPI_BYTE, 1, 7, MPI_COMM_WORLD);
      } else {
        MPI_Recv(array + kAround + at, count, MPI_BYTE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      }
    }
    read += bytes_read() - before;
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
  free(filler);
  free(array);
  MPI_Finalize();
  return wrong != 0;
}
