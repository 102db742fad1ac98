/* Huge pages while memory is enough, and what becomes of them when it is short: huge_pages [ask|disabled]; it may
   ask for them, and the kernel may refuse them.
   Prints "huge N MiB" (mapped by huge pages while memory was enough) and "wrong N". */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "huge_mib.h"
#include "pressure.h"

enum { kMib = 1 << 20, kArray = 24, kBlock = 256 << 10, kRead = 4096 };

static unsigned char* array; /* of 2 MiB pages, after the first border of one */
static int told[2];
static unsigned wrong;

/* A huge page has no byte that is zero in every other page of the array. */
static unsigned char value(size_t at) {
  const unsigned char byte = (unsigned char)(at * 31 + (at >> 12));
  return (at >> 21) % 2 != 0 && byte == 0 ? 1 : byte;
}

static void check(size_t from, size_t to) {
  for (size_t at = from; at < to; ++at) {
    wrong += array[at] != value(at);
  }
}

/* The kernel waits with a part of the array in its hands: the first block of its fifth huge page. */
static void* read_into_array(void* unused) {
  (void)unused;
  for (size_t done = 0; done < kRead;) {
    const ssize_t count = read(told[0], array + 4 * (size_t)(2 * kMib) + done, kRead - done);
    CHECK(count > 0);
    done += (size_t)count;
  }
  return NULL;
}

int main(int argc, char** argv) {
  unsigned char* memory = malloc((size_t)(kArray + 4) * kMib);
  array = (unsigned char*)(((uintptr_t)memory + 2 * kMib) & ~(uintptr_t)(2 * kMib - 1));
  const size_t size = (size_t)kArray * kMib;
  const char* what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "disabled") == 0) {
    CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
  }
  if (*what != 0) {
    CHECK(madvise(array, size, MADV_HUGEPAGE) == 0);
  }
  for (size_t at = 0; at < size; ++at) {
    array[at] = value(at);
  }
  printf("huge %zu MiB\n", huge_mib());
  /* The kernel splits one by itself. */
  unsigned char* part = array + 2 * (size_t)(2 * kMib) + kBlock;
  CHECK(madvise(part, kBlock, MADV_DONTNEED) == 0);
  for (size_t at = 0; at < kBlock; ++at) {
    wrong += part[at] != 0;
    part[at] = value((size_t)(part - array) + at);
  }
  CHECK(pipe(told) == 0);
  pthread_t reader;
  CHECK(pthread_create(&reader, NULL, read_into_array, NULL) == 0);
  usleep(100000);

  bytes = 96 * (size_t)kMib;
  pressure = malloc(bytes);
  press();
  CHECK(huge_mib() == 0);

  /* A part of the huge page in which the kernel is at work is given up, and of one where it is not. */
  unsigned char* busy = array + 4 * (size_t)(2 * kMib);
  for (int page = 0; page < 2; ++page, busy += 2 * kMib) {
    CHECK(madvise(busy + 3 * kBlock, kBlock, MADV_DONTNEED) == 0);
    for (size_t at = 0; at < kBlock; ++at) {
      wrong += busy[3 * kBlock + at] != 0;
    }
    for (size_t at = 0; at < kBlock; ++at) {
      busy[3 * kBlock + at] = value((size_t)(busy - array) + 3 * kBlock + at);
    }
  }
  press();

  unsigned char text[kRead];
  memset(text, 'x', sizeof text);
  CHECK(write(told[1], text, sizeof text) == (ssize_t)sizeof text);
  CHECK(pthread_join(reader, NULL) == 0);
  press();
  const size_t at = 4 * (size_t)(2 * kMib);
  wrong += memcmp(array + at, text, sizeof text) != 0;
  check(0, at);
  check(at + kRead, size);
  printf("wrong %u\n", wrong);
  return wrong != 0;
}
