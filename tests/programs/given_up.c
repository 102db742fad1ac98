/* Memory that is mostly on storage is given up in each of the ways there are: nothing may be moved for that, and what is left
   keeps its content. Prints "wrong 0". */
#define _GNU_SOURCE
#include <headroom/headroom.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { kMib = 1 << 20, kEach = 32, kLeft = 4 };

static unsigned wrong;

static void expect(int right, const char* what) {
  if (!right) {
    fprintf(stderr, "not so: %s\n", what);
    ++wrong;
  }
}

static uint64_t moved(void) {
  struct headroom_statistics now = {.size = sizeof now};
  expect(headroom_read_statistics(&now) == 0, "statistics can be read");
  return now.read_bytes + now.written_bytes;
}

/* What is under way ends first. */
static uint64_t moved_at_rest(void) {
  uint64_t before = moved();
  for (int quiet = 0; quiet < 10;) {
    nanosleep(&(struct timespec){0, 10 * 1000 * 1000}, NULL);
    const uint64_t now = moved();
    quiet = now == before ? quiet + 1 : 0;
    before = now;
  }
  return before;
}

static char* map(void) { return mmap(NULL, (size_t)kEach * kMib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

int main(void) {
  char* memory[] = {malloc((size_t)kEach * kMib), malloc((size_t)kEach * kMib), map(), map()};
  for (int each = 0; each < 4; ++each) {
    for (size_t page = 0; page < (size_t)kEach * kMib; page += 4096) {
      memset(memory[each] + page, each + 1, 4096);
    }
  }
  const uint64_t before = moved_at_rest();
  free(memory[0]);
  memory[1] = realloc(memory[1], (size_t)kLeft * kMib);
  munmap(memory[2], (size_t)kEach * kMib);
  madvise(memory[3], (size_t)kEach * kMib, MADV_DONTNEED);
  expect(moved_at_rest() == before, "nothing is moved");
  for (size_t at = 0; at < (size_t)kLeft * kMib; at += 512) {
    wrong += memory[1][at] != 2;
  }
  for (size_t at = 0; at < (size_t)kEach * kMib; at += 512) {
    wrong += memory[3][at] != 0;
  }
  printf("wrong %u\n", wrong);
  return wrong != 0;
}
