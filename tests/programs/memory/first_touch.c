/* Touches an array of 96 MiB for the first time: in order, every 16th page of it, or in order after it has said that it wants
   small pages. Prints "huge N MiB" and "wrong 0". usage: first_touch dense|sparse|small */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "huge_mib.h"

enum { kPage = 4096, kPages = 96 << 8, kPause = 64 };

int main(int argc, char** argv) {
  const size_t step = argc > 1 && strcmp(argv[1], "sparse") == 0 ? 16 : 1;
  unsigned char* array = malloc((size_t)kPages * kPage);
  size_t wrong = 0;
  if (argc > 1 && strcmp(argv[1], "small") == 0) {
    unsigned char* begin = array + (-(uintptr_t)array & (kPage - 1));
    if (madvise(begin, (size_t)(kPages - 1) * kPage, MADV_NOHUGEPAGE) != 0) {
      return 1;
    }
  }
  for (size_t page = 0; page < kPages; page += step) {
    memset(array + page * kPage, (int)(page % 251), kPage);
    if (page % (kPage / kPause) == 0) { /* time to be looked at */
      nanosleep(&(struct timespec){0, 50 * 1000}, NULL);
    }
  }
  printf("huge %zu MiB\n", huge_mib());
  for (size_t page = 0; page < kPages; page += step) {
    wrong += array[page * kPage] != page % 251 || array[page * kPage + kPage - 1] != page % 251;
  }
  printf("wrong %zu\n", wrong);
  free(array);
  return wrong != 0;
}
