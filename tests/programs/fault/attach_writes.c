/* Rank 1 writes into rank 0's memory by cross-memory attach while rank 0's pager writes that memory out: the write does not
   pass through rank 0's page tables, and must not be lost. Prints "ok". usage: attach_writes MIB ROUNDS */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pressure.h"

enum { kPiece = 4 << 20 };

/* `count` vectors here and a few more there, so that they do not end at the same places; the first ones are empty. */
static ssize_t write_remotely(pid_t pid, unsigned char* from, uint64_t to, int count) {
  struct iovec local[200], remote[200];
  const int there = count == 1 ? 1 : count + 37;
  local[0] = (struct iovec){from, 0};
  remote[0] = (struct iovec){(void*)to, 0};
  for (int index = 0; index < count; ++index) {
    const size_t begin = (size_t)kPiece / (size_t)count * (size_t)index;
    const size_t end = index + 1 == count ? kPiece : (size_t)kPiece / (size_t)count * (size_t)(index + 1);
    local[index + 1] = (struct iovec){from + begin, end - begin};
  }
  for (int index = 0; index < there; ++index) {
    const size_t begin = (size_t)kPiece / (size_t)there * (size_t)index;
    const size_t end = index + 1 == there ? kPiece : (size_t)kPiece / (size_t)there * (size_t)(index + 1);
    remote[index + 1] = (struct iovec){(void*)(to + begin), end - begin};
  }
  return process_vm_writev(pid, local, (unsigned long)count + 1, remote, (unsigned long)there + 1, 0);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  bytes = (size_t)atoi(argv[1]) << 20;
  const int rounds = atoi(argv[2]);
  unsigned char* target = malloc(bytes);
  uint64_t about[2] = {(uint64_t)(uintptr_t)target, (uint64_t)getpid()};
  memset(target, 0, rank == 0 ? bytes : kPiece);
  MPI_Bcast(about, 2, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  pressure = malloc(bytes);
  for (int round = 0; round < rounds; ++round) {
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    if (rank == 0) { /* everything is driven out again and again until the other is through */
      for (int done = 0; !done; MPI_Test(&request, &done, MPI_STATUS_IGNORE)) {
        press();
      }
      MPI_Barrier(MPI_COMM_WORLD);
      for (size_t at = 0; at < bytes; at += kPiece) {
        CHECK(same(target + at, kPiece, (unsigned)round + (unsigned)(at / kPiece)));
      }
    } else {
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      for (size_t at = 0; at < bytes; at += kPiece) {
        fill(target, kPiece, (unsigned)round + (unsigned)(at / kPiece));
        CHECK(write_remotely((pid_t)about[1], target, about[0] + at, round % 2 == 0 ? 1 : 100) == kPiece);
      }
      MPI_Barrier(MPI_COMM_WORLD);
    }
  }
  if (rank == 0) {
    printf("ok\n");
  }
  MPI_Finalize();
  return 0;
}
