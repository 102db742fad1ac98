/* More elements than an int can count, between two ranks: a message, MPI_Bcast_c, and parts that lie behind so many elements in
 * MPI_Gatherv_c and MPI_Scatterv_c. Each page has its number somewhere; to write all bytes would take most of the time. Prints
 * "huge counts ok". */
#include <limits.h>
#include <mpi.h>
#include <stdint.h>

#include "pressure.h"

enum { PAGE = 4096, PART = 70000 };
static const MPI_Count count = (MPI_Count)INT_MAX + PART; /* no whole number of pages */

/* Where page `page` has its number: each time elsewhere in it. */
static uint64_t* stamp(unsigned char* buffer, uint64_t page) {
  return (uint64_t*)(buffer + page * PAGE + page % (PAGE / sizeof(uint64_t)) * sizeof(uint64_t));
}

static void check_numbers(unsigned char* buffer, uint64_t offset) {
  for (uint64_t page = 0; page < (uint64_t)count / PAGE; ++page) {
    CHECK(*stamp(buffer, page) == page + offset);
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, short_got = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  unsigned char *buffer = malloc((size_t)count), part[PART];
  unsigned char* const last = buffer + count - PART;
  MPI_Status status;
  MPI_Count got = 0;
  if (rank == 0) {
    for (uint64_t page = 0; page < (uint64_t)count / PAGE; ++page) {
      *stamp(buffer, page) = page + 1;
    }
    buffer[count - 1] = 2;
    MPI_Send_c(buffer, count, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
  } else {
    MPI_Recv_c(buffer, count, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &status);
    MPI_Get_count_c(&status, MPI_BYTE, &got);
    MPI_Get_count(&status, MPI_BYTE, &short_got);
    CHECK(got == count && short_got == MPI_UNDEFINED);
    check_numbers(buffer, 1);
    CHECK(buffer[count - 1] == 2);
    for (uint64_t page = 0; page < (uint64_t)count / PAGE; ++page) {
      *stamp(buffer, page) = page + 3;
    }
    buffer[count - 1] = 4;
  }
  MPI_Bcast_c(buffer, count, MPI_BYTE, 1, MPI_COMM_WORLD);
  check_numbers(buffer, 3);
  CHECK(buffer[count - 1] == 4);
  const MPI_Count counts[2] = {PART, PART};
  const MPI_Aint places[2] = {0, count - PART};
  fill(part, PART, (unsigned)rank);
  MPI_Gatherv_c(part, PART, MPI_BYTE, buffer, counts, places, MPI_BYTE, 0, MPI_COMM_WORLD);
  CHECK(rank != 0 || (same(buffer, PART, 0) && same(last, PART, 1)));
  MPI_Scatterv_c(buffer, counts, places, MPI_BYTE, rank == 0 ? MPI_IN_PLACE : last, PART, MPI_BYTE, 0, MPI_COMM_WORLD);
  CHECK(same(last, PART, 1));
  if (rank == 0) {
    printf("huge counts ok\n");
  }
  MPI_Finalize();
  return 0;
}
