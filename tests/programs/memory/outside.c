/* Fills memory that is not taken in large pieces by malloc(), and keeps it for 2.5 s: what of it cannot move has to be said.
   With -DWITH_LARGE_ARRAY it has a large static array. With -DWITH_MPI before MPI_Init(), and looks at its content afterwards
   ("wrong 0"). usage: outside small|middle|growing|brk|shared|proposed|insisting|reserved|grown MIB */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_MPI
#include <mpi.h>
#endif

#ifdef WITH_LARGE_ARRAY
enum { kMost = 1 << 20 }; /* pointers: 8 MiB that can move, which the process joins its node for before it begins */
#else
enum { kMost = 1 << 16 };
#endif
static char* pieces[kMost];
static size_t count, piece_bytes;

static char* mapped(void* address, size_t bytes, int protection, int flags) {
  char* memory = mmap(address, bytes, protection, flags | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

/* As allocators do that want their memory side by side: what lies elsewhere is given back, and asked for again. */
static char* insisted(char* wanted, size_t bytes, int* attempts) {
  for (*attempts = 1; *attempts <= 10; ++*attempts) {
    char* memory = mapped(wanted, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    if (memory == wanted) {
      return memory;
    }
    munmap(memory, bytes);
  }
  return NULL;
}

static int fill(const char* kind, size_t bytes) {
  char* whole = NULL;
  const int grows = strcmp(kind, "growing") == 0; /* smaller than moves at first, and slowly enough to be noticed */
  piece_bytes = strcmp(kind, "small") == 0 ? 4096 : strcmp(kind, "middle") == 0 ? 200 << 10 : grows ? 96 << 10 : 2 << 20;
  count = bytes / piece_bytes;
  if (count > kMost) {
    return 0;
  }
  char* const far = (char*)(uintptr_t)0x300000000000;
  if (strcmp(kind, "brk") == 0) {
    whole = sbrk((intptr_t)bytes);
  } else if (strcmp(kind, "shared") == 0) {
    whole = mapped(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED);
  } else if (strcmp(kind, "proposed") == 0) {
    whole = mapped(far, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE);
  } else if (strcmp(kind, "insisting") == 0) {
    int attempts = 0;
    whole = insisted(far, bytes, &attempts);
    fprintf(stderr, "attempts %d\n", attempts);
  } else if (strcmp(kind, "grown") == 0) {
    const size_t little = 64 << 10; /* too small to move */
    whole = mapped(NULL, little, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    whole = whole != NULL ? mremap(whole, little, bytes, MREMAP_MAYMOVE) : NULL;
  } else if (strcmp(kind, "reserved") == 0) {
    whole = mapped(NULL, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_NORESERVE);
  } else {
    for (size_t piece = 0; piece < count; ++piece) {
      pieces[piece] = malloc(piece_bytes);
      memset(pieces[piece], (int)(piece % 251), piece_bytes);
      if (grows && piece == count / 2) {
        sleep(3);
      }
    }
    return 1;
  }
  if (whole == NULL || whole == (char*)-1) {
    return 0;
  }
  for (size_t piece = 0; piece < count; ++piece) {
    pieces[piece] = whole + piece * piece_bytes;
    if (strcmp(kind, "reserved") == 0 && mprotect(pieces[piece], piece_bytes, PROT_READ | PROT_WRITE) != 0) {
      return 0;
    }
    memset(pieces[piece], (int)(piece % 251), piece_bytes);
    void* volatile small = malloc(64); /* as programs do; not left out by the compiler */
    free(small);
  }
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 3 || !fill(argv[1], (size_t)atol(argv[2]) << 20)) {
    return 2;
  }
#ifdef WITH_MPI
  MPI_Init(&argc, &argv);
#endif
  const struct timespec time = {2, 500000000};
  nanosleep(&time, NULL);
  size_t wrong = 0;
  for (size_t piece = 0; piece < count; ++piece) {
    for (size_t at = 0; at < piece_bytes; at += 1024) {
      wrong += pieces[piece][at] != (char)(piece % 251);
    }
  }
#ifdef WITH_MPI
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
#endif
  printf("wrong %zu\n", wrong);
  return 0;
}
