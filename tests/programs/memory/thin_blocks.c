/* An array of MIB is filled, and then, PASSES times, "few" pages of each block of 256 KiB are used, the blocks in another order
   each time, or "all" pages in order, with work in between, as programs have that do not jump about. Each word is checked and
   changed. A forked child checks it all, too. Prints "wrong 0". usage: thin_blocks MIB PASSES few|all */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS_OF_PAGE = 512, PAGES_OF_BLOCK = 64, FEW = 8 };

static volatile double worked;
static uint64_t wrong;

static void work(void) {
  for (int i = 0; i < 200000; ++i) {
    worked = worked * 0.5 + 1;
  }
}

static void use(uint64_t* array, uint64_t page, uint64_t pass) {
  const uint64_t i = page * WORDS_OF_PAGE + page % WORDS_OF_PAGE;
  wrong += array[i] != i * 31 + pass;
  ++array[i];
}

static int is_used(uint64_t page, int few) { return !few || page % PAGES_OF_BLOCK % (PAGES_OF_BLOCK / FEW) == 3; }

static uint64_t check(const uint64_t* array, uint64_t pages, int few, uint64_t passes) {
  uint64_t bad = 0;
  for (uint64_t i = 0; i < pages * WORDS_OF_PAGE; ++i) {
    const uint64_t page = i / WORDS_OF_PAGE;
    const int changed = i % WORDS_OF_PAGE == page % WORDS_OF_PAGE && is_used(page, few);
    bad += array[i] != i * 31 + (changed ? passes : 0);
  }
  return bad;
}

int main(int argc, char** argv) {
  const uint64_t blocks = argc == 4 ? strtoull(argv[1], NULL, 10) * 4 : 1, pages = blocks * PAGES_OF_BLOCK;
  const uint64_t passes = argc == 4 ? strtoull(argv[2], NULL, 10) : 0;
  const int few = argc == 4 && argv[3][0] == 'f';
  uint64_t* array = malloc(pages * WORDS_OF_PAGE * sizeof *array);
  for (uint64_t i = 0; i < pages * WORDS_OF_PAGE; ++i) {
    array[i] = i * 31;
  }
  for (uint64_t pass = 0; pass < passes; ++pass) {
    for (uint64_t turn = 0; turn < blocks; ++turn) {
      const uint64_t block = few ? (turn * 163 + pass * 7) % blocks : turn; /* 163 has no divisor in common with 4 * MIB */
      for (uint64_t page = block * PAGES_OF_BLOCK; page < (block + 1) * PAGES_OF_BLOCK; ++page) {
        if (is_used(page, few)) {
          use(array, page, pass);
        }
      }
      work();
    }
  }
  const pid_t child = fork();
  if (child == 0) {
    _exit(check(array, pages, few, passes) != 0);
  }
  for (uint64_t page = 0; page < pages; ++page) { /* while the child looks at what there was */
    *(volatile uint64_t*)&array[page * WORDS_OF_PAGE + page % WORDS_OF_PAGE] += 0;
  }
  int status = 0;
  wrong += waitpid(child, &status, 0) != child || status != 0;
  wrong += check(array, pages, few, passes);
  printf("wrong %llu\n", (unsigned long long)wrong);
  free(array);
  return wrong != 0;
}
