/* Gives up arrays while they are being filled: a part with madvise, and as a whole with free. What is given up must not come
   back, and what the next array has of it must be zeros. Prints "back 0 MiB, wrong 0". usage: given_up_while_filled MIB */
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "pressure.h"

enum { kPage = 4096, kPagesOfMib = 256 };

static void fill_slowly(unsigned char* array, size_t from, size_t to) {
  for (size_t page = from * kPagesOfMib; page < to * kPagesOfMib; ++page) {
    memset(array + page * kPage, 5, kPage);
    if (page % 64 == 0) { /* time to be looked at */
      nanosleep(&(struct timespec){0, 50 * 1000}, NULL);
    }
  }
}

static long shared_mib(void) {
  char line[256];
  long kib = 0;
  FILE* status = fopen("/proc/self/status", "r");
  CHECK(status != NULL);
  while (fgets(line, sizeof line, status) != NULL) {
    (void)sscanf(line, "RssShmem: %ld", &kib);
  }
  fclose(status);
  return kib >> 10;
}

int main(int argc, char** argv) {
  CHECK(argc > 1);
  bytes = (size_t)atoi(argv[1]) << 20;
  const size_t mib = 64, half = 32, kept = 24;

  unsigned char* array = malloc(mib << 20);
  fill_slowly(array, 0, half);
  CHECK(madvise(array, half << 20, MADV_DONTNEED) == 0);
  const long before = shared_mib();
  CHECK(madvise(array + ((mib - 4) << 20), 4 << 20, MADV_HUGEPAGE) == 0); /* ends the watch */
  const long back = shared_mib() - before;
  fill_slowly(array, 0, half);
  free(array);

  size_t wrong = 0;
  array = malloc(kept << 20);
  fill_slowly(array, 0, kept / 2);
  free(array); /* and is kept for the next one */
  array = calloc(kept, 1 << 20);
  pressure = malloc(bytes);
  press();
  for (size_t at = 0; at < kept << 20; ++at) {
    wrong += array[at] != 0;
  }
  printf("back %ld MiB, wrong %zu\n", back, wrong);
  return wrong != 0;
}
