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

static struct headroom_statistics statistics(void) {
  struct headroom_statistics now = {.size = sizeof now};
  expect(headroom_read_statistics(&now) == 0, "statistics can be read");
  return now;
}

static uint64_t moved(void) {
  const struct headroom_statistics now = statistics();
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

static void expect_all(const char* memory, size_t mib, char value, const char* what) {
  for (size_t at = 0; at < mib * kMib; at += 512) {
    if (memory[at] != value) {
      expect(0, what);
      return;
    }
  }
}

/* Either is right as long as nothing is written there. */
static void expect_old_or_zero(const char* memory, char old) {
  for (size_t at = 0; at < (size_t)kEach * kMib; at += 512) {
    if (memory[at] != old && memory[at] != 0) {
      expect(0, "content before MADV_FREE, or none");
      return;
    }
  }
}

int main(void) {
  const size_t each = (size_t)kEach * kMib, left = (size_t)kLeft * kMib;
  char* memory[] = {malloc(each), malloc(each), map(), map(), map(), map()};
  for (int index = 0; index < 6; ++index) {
    for (size_t page = 0; page < each; page += 512) {
      memory[index][page] = (char)(index + 1);
    }
  }
  const uint64_t before = moved_at_rest();
  free(memory[0]);
  memory[0] = calloc(kEach, kMib);
  memory[1] = realloc(memory[1], left);
  munmap(memory[2], each);
  expect(madvise(memory[3], each, MADV_DONTNEED) == 0, "MADV_DONTNEED");
  expect(madvise(memory[4], each, MADV_FREE) == 0, "MADV_FREE");
  expect(mremap(memory[5], each, left, 0) == memory[5], "mremap to less");
  expect(moved_at_rest() == before, "nothing is moved");
  const uint64_t read_before = statistics().read_bytes;
  expect_all(memory[0], kEach, 0, "what is allocated again is zero");
  expect_all(memory[3], kEach, 0, "zero after MADV_DONTNEED");
  expect_old_or_zero(memory[4], 5);
  expect(statistics().read_bytes == read_before, "nothing that was given up is read");
  memset(memory[4], 9, each);
  expect_all(memory[1], kLeft, 2, "what realloc leaves");
  expect_all(memory[5], kLeft, 6, "what mremap leaves");
  expect_all(memory[4], kEach, 9, "what is written after MADV_FREE");
  printf("wrong %u\n", wrong);
  return wrong != 0;
}
