/* A rank with 64 MiB and a message to its neighbour; prints "right". The test links code that takes the address of many
   functions (take_addresses), or has the program define some of the C library's names itself (OWN_NAMES). */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef OWN_NAMES
struct dl_phdr_info;
static void take_addresses(void) {}
/* As old programs have them: right, but their own, and of no use before the program is relocated. */
static char byte;
static char* volatile relocated = &byte;
static void must_run(void) { *relocated = 1; }
int strcmp(const char* one, const char* other) {
  must_run();
  while (*one != 0 && *one == *other) {
    ++one;
    ++other;
  }
  return (unsigned char)*one - (unsigned char)*other;
}
size_t strlen(const char* text) {
  must_run();
  size_t length = 0;
  while (text[length] != 0) {
    ++length;
  }
  return length;
}
int strncmp(const char* one, const char* other, size_t count) {
  must_run();
  for (; count > 0; --count, ++one, ++other) {
    if (*one != *other || *one == 0) {
      return (unsigned char)*one - (unsigned char)*other;
    }
  }
  return 0;
}
#else
void take_addresses(void);
#endif

enum { kBytes = 64 << 20 };

int main(int argc, char** argv) {
  take_addresses();
  MPI_Init(&argc, &argv);
  int rank, ranks, from = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  unsigned char* memory = malloc(kBytes);
  int right = 1;
  for (int pass = 0; pass < 2; ++pass) {
    for (int at = 0; at < kBytes; at += 512) {
      right &= pass == 0 || memory[at] == (unsigned char)(at / 512 + rank);
      memory[at] = (unsigned char)(at / 512 + rank);
    }
  }
  MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % ranks, 0, &from, 1, MPI_INT, (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  right &= from == (rank + ranks - 1) % ranks;
  printf("%s\n", right ? "right" : "wrong");
  free(memory);
  MPI_Finalize();
  return !right;
}
