/* What programs that test evictable memory share: checks that name their line, memory that drives everything else out, and
   content that is known at each place. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                    \
  do {                                                                                      \
    if (!(condition)) {                                                                     \
      fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, strerror(errno)); \
      exit(1);                                                                              \
    }                                                                                       \
  } while (0)

static size_t bytes;
static char* pressure;

/* Drives everything else out of memory: used three times in a row, since one sweep does not flush what was used before. */
static inline void press(void) {
  for (int sweep = 0; sweep < 3; ++sweep) {
    for (size_t at = 0; at < bytes; at += 4096) {
      pressure[at]++;
    }
  }
}

static inline void fill(unsigned char* buffer, size_t count, unsigned seed) {
  for (size_t i = 0; i < count; ++i) {
    buffer[i] = (unsigned char)(i * 31 + seed + (i >> 12));
  }
}

static inline int same_between(const unsigned char* buffer, size_t from, size_t to, unsigned seed) {
  for (size_t i = from; i < to; ++i) {
    if (buffer[i] != (unsigned char)(i * 31 + seed + (i >> 12))) {
      return 0;
    }
  }
  return 1;
}

static inline int same(const unsigned char* buffer, size_t count, unsigned seed) {
  return same_between(buffer, 0, count, seed);
}
