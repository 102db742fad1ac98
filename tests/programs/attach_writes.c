/* Rank 1 writes into rank 0's memory by cross-memory attach while rank 0's pager writes that memory out: the write does not
   pass through rank 0's page tables, and must not be lost. Prints "ok". usage: attach_writes MIB ROUNDS */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pressure.h"

enum { kPiece = 4 << 20 };

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
        struct iovec local = {target, kPiece}, remote = {(void*)(about[0] + at), kPiece};
        CHECK(process_vm_writev((pid_t)about[1], &local, 1, &remote, 1, 0) == kPiece);
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
