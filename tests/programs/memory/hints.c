/* What a program may say of its memory, with three times as much of it as the budget: each hint is seen in what is read.
   Prints "wrong 0". */
#define _GNU_SOURCE
#include <headroom/headroom.h>
#include <headroom/memory.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kMib = 1 << 20, kWords = kMib / 8, kAll = 72, kBudget = 24 };

static uint64_t wrong = 0;

static void expect(int right, const char* what) {
  if (!right) {
    fprintf(stderr, "not so: %s\n", what);
    ++wrong;
  }
}

static struct headroom_statistics now(void) {
  struct headroom_statistics statistics = {.size = sizeof statistics};
  expect(headroom_read_statistics(&statistics) == 0, "statistics can be read");
  return statistics;
}

static uint64_t value(uint64_t index, uint64_t round) { return (index + 1) * 0x9e3779b97f4a7c15u + round; }

static void fill(uint64_t* array, uint64_t mib, uint64_t round) {
  for (uint64_t index = 0; index < mib * kWords; ++index) {
    array[index] = value(index, round);
  }
}

static void check(const uint64_t* array, uint64_t mib, uint64_t round) {
  for (uint64_t index = 0; index < mib * kWords; ++index) {
    wrong += array[index] != value(index, round);
  }
}

/* Until `done` of what was before and what is now, or for ten seconds. */
static int comes_true(int (*done)(struct headroom_statistics before, struct headroom_statistics after),
                      struct headroom_statistics before) {
  for (int wait = 0; wait < 10000; ++wait) {
    if (done(before, now())) {
      return 1;
    }
    const struct timespec millisecond = {0, 1000000};
    nanosleep(&millisecond, NULL);
  }
  return 0;
}

static int has_read(struct headroom_statistics before, struct headroom_statistics after) {
  return after.read_bytes >= before.read_bytes + 4 * kMib;
}
static int has_left(struct headroom_statistics before, struct headroom_statistics after) {
  (void)before;
  return after.resident_bytes <= 4 * kMib;
}

/* What the address may be used for: "rw", "r-" and so on, by /proc/self/maps. */
static int rights_are(const void* address, const char* expected) {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[512];
  int same = 0;
  while (fgets(line, sizeof line, maps) != NULL) {
    unsigned long begin = 0, end = 0;
    char rights[8] = "";
    if (sscanf(line, "%lx-%lx %4s", &begin, &end, rights) == 3 && begin <= (unsigned long)address &&
        (unsigned long)address < end) {
      same = rights[0] == expected[0] && rights[1] == expected[1];
    }
  }
  fclose(maps);
  return same;
}

/* Rights are the program's: a hint does not give back what mprotect has taken. */
static void hint_about_protected_memory(uint64_t* array) {
  char* part = (char*)array + 9 * kMib;
  part += (4096 - (uintptr_t)part % 4096) % 4096;
  expect(mprotect(part, 2 * kMib, PROT_READ) == 0, "rights can be taken away");
  expect(headroom_will_overwrite(array, (size_t)kAll * kMib) == 0, "a hint is taken");
  expect(rights_are(part + kMib, "r-"), "and rights are still away");
  expect(mprotect(part, 2 * kMib, PROT_READ | PROT_WRITE) == 0, "rights can be given back");
}

/* A child has what there was at the fork, whatever the parent says of its own memory. */
static void hint_beside_a_child(uint64_t* array) {
  fill(array, kAll, 7);
  int told[2];
  expect(pipe(told) == 0, "a pipe can be made");
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    wrong = read(told[0], &byte, 1) != 1;
    check(array, kAll, 7);
    _exit(wrong != 0);
  }
  expect(headroom_will_overwrite(array, (size_t)kAll * kMib) == 0, "a hint is taken");
  fill(array, kAll, 8);
  expect(write(told[1], "x", 1) == 1, "the child can be told");
  int status = -1;
  expect(waitpid(child, &status, 0) == child && status == 0, "the child sees what there was");
  check(array, kAll, 8);
  close(told[0]);
  close(told[1]);
}

/* The system's own words for the same. */
static void advise(uint64_t* array) {
  char* begin = (char*)array + (4096 - (uintptr_t)array % 4096) % 4096;
  const size_t bytes = (size_t)kAll * kMib - 8192;
  fill(array, kAll, 4);
  expect(madvise(begin, bytes, MADV_FREE) == 0, "advice is taken");
  struct headroom_statistics before = now();
  fill(array, kAll, 5);
  expect(now().read_bytes - before.read_bytes <= 2 * kMib, "what was freed is not read");
  check(array, kAll, 5);
  expect(madvise(begin, bytes, MADV_PAGEOUT) == 0, "advice is taken");
  expect(comes_true(has_left, before), "what is not needed leaves");
  before = now();
  expect(madvise(begin + 30 * kMib, 8 * kMib, MADV_WILLNEED) == 0, "advice is taken");
  expect(comes_true(has_read, before), "what is needed is read ahead");
  check(array, kAll, 5);
}

int main(void) {
  uint64_t* array = malloc((size_t)kAll * kMib);
  fill(array, kAll, 0);
  check(array, kAll, 0);

  struct headroom_statistics before = now();
  fill(array, kAll, 1);
  expect(now().read_bytes - before.read_bytes >= (kAll - 2 * kBudget) * (uint64_t)kMib, "overwriting reads without a hint");
  expect(headroom_will_overwrite(array, (size_t)kAll * kMib) == 0, "a hint is taken");
  before = now();
  fill(array, kAll, 2);
  expect(now().read_bytes - before.read_bytes <= 2 * kMib, "overwriting does not read after the hint");
  check(array, kAll, 2);

  /* Ends inside blocks: their other bytes stay. */
  expect(headroom_will_overwrite(array + 1, (size_t)kAll * kMib - 16) == 0, "any address will do");
  expect(array[0] == value(0, 2) && array[kAll * kWords - 1] == value((uint64_t)kAll * kWords - 1, 2), "the ends stay");
  fill(array, kAll, 3);
  check(array, kAll, 3);

  expect(headroom_will_not_need(array, (size_t)kAll * kMib) == 0, "a hint is taken");
  expect(comes_true(has_left, before), "what is not needed leaves");
  before = now();
  expect(headroom_will_need(array + 30 * kWords, 8 * kMib) == 0, "a hint is taken");
  expect(comes_true(has_read, before), "what is needed is read ahead");
  for (uint64_t index = 30 * kWords; index < 34 * kWords; ++index) {
    wrong += array[index] != value(index, 3);
  }

  expect(headroom_hold(array, 4 * kMib) == 0, "a little can be held");
  expect(headroom_hold(array, (size_t)kAll * kMib) != 0, "everything cannot");
  check(array, kAll, 3);
  before = now();
  check(array, 4, 3);
  expect(now().read_bytes == before.read_bytes, "what is held is not read again");
  expect(headroom_release(array, 4 * kMib) == 0, "and can be released");
  check(array, kAll, 3);

  advise(array);
  hint_about_protected_memory(array);
  hint_beside_a_child(array);

  printf("wrong %llu\n", (unsigned long long)wrong);
  return wrong != 0;
}
