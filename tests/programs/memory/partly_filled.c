/* Fills the first MiB of an array in order, a page here and there of the rest, and then a second array twice, which drives all
   out of memory. Both must be as they were left. Prints "wrong 0". usage: partly_filled MIB FILLED OTHER */
#define _GNU_SOURCE
#include <stdint.h>
#include <time.h>

#include "pressure.h"

enum { kPage = 4096, kPagesOfMib = 256, kStep = 1001 };

int main(int argc, char** argv) {
  CHECK(argc > 3);
  const size_t pages = (size_t)atoi(argv[1]) * kPagesOfMib, filled = (size_t)atoi(argv[2]) * kPagesOfMib;
  bytes = (size_t)atoi(argv[3]) << 20;
  unsigned char* array = malloc(pages * kPage);
  for (size_t page = 0; page < filled; ++page) {
    memset(array + page * kPage, (int)(page % 251) + 1, kPage);
    if (page % 64 == 0) { /* time to be looked at */
      nanosleep(&(struct timespec){0, 50 * 1000}, NULL);
    }
  }
  for (size_t page = filled; page < pages; page += kStep) {
    array[page * kPage + 1] = 7;
  }
  pressure = malloc(bytes);
  press();
  size_t wrong = 0;
  for (size_t page = 0; page < pages; ++page) {
    const unsigned char* at = array + page * kPage;
    const unsigned char expected = page < filled ? (unsigned char)(page % 251 + 1) : 0;
    const int is_marked = page >= filled && (page - filled) % kStep == 0;
    wrong += at[0] != expected || at[kPage - 1] != expected || at[1] != (is_marked ? 7 : expected);
  }
  for (size_t at = 0; at < bytes; at += kPage) {
    wrong += pressure[at] != 3;
  }
  printf("wrong %zu\n", wrong);
  return wrong != 0;
}
