/* A table that is sized for much more than is put into it: one page in so many is touched, in order or not, before or after
 * other memory that is used in full. Then both are gone over in turn; a forked child finds the same; at last a part of the
 * table is filled, and a part given up.
 *
 *   sparse_memory TABLE_MIB EACH DENSE_MIB PASSES ORDER     ORDER: in-order, random
 *
 * Prints "wrong 0". */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kPage = 4096, kPageWords = kPage / 8 };
static const uint64_t kPrime = 1000003; /* no table has a multiple of so many touched pages */

static uint64_t *table, *dense, touched, each, dense_words, wrong;

static uint64_t* page_of(uint64_t index) { return table + index * each * kPageWords; }

static void check_table(uint64_t from) {
  for (uint64_t index = from; index < touched; ++index) {
    const uint64_t* page = page_of(index);
    wrong += page[index % kPageWords] != index + 1;
    wrong += page[(index + 1) % kPageWords] != 0; /* of the same page */
  }
}

static void check_what_is_zero(uint64_t from) {
  for (uint64_t index = from; index < touched && each > 1; index += 7) {
    wrong += page_of(index)[kPageWords + index % kPageWords] != 0; /* the page behind it, which nothing has touched */
  }
}

static void go_over_dense(uint64_t pass) {
  for (uint64_t word = 0; word < dense_words; ++word) {
    wrong += dense[word] != word * pass;
    dense[word] = word * (pass + 1);
  }
}

static void check_in_child(void) {
  const pid_t child = fork();
  if (child == 0) {
    const uint64_t before = wrong;
    check_table(0);
    check_what_is_zero(0);
    page_of(touched / 2)[0] = 1; /* which the parent does not see */
    _exit(wrong != before);
  }
  int status = 1;
  wrong += child < 0 || waitpid(child, &status, 0) != child || status != 0;
}

static void fill_and_give_up(uint64_t table_words) {
  uint64_t quarter = table_words / 4 / kPageWords * kPageWords;
  for (uint64_t word = 0; word < quarter; ++word) {
    table[word] = word;
  }
  for (uint64_t word = 0; word < quarter; ++word) {
    wrong += table[word] != word;
  }
  uint64_t* given_up = table + 2 * quarter;
  wrong += madvise(given_up, quarter * 8, MADV_DONTNEED) != 0;
  for (uint64_t word = 0; word < quarter; word += kPageWords / 2) {
    wrong += given_up[word] != 0;
    given_up[word] = word;
  }
  for (uint64_t word = 0; word < quarter; word += kPageWords / 2) {
    wrong += given_up[word] != word || given_up[word + 1] != 0;
  }
  check_table(3 * quarter / kPageWords / each + 1);
}

int main(int argument_count, char** arguments) {
  if (argument_count != 6) {
    return 2;
  }
  const uint64_t table_words = strtoull(arguments[1], NULL, 10) << 17;
  each = strtoull(arguments[2], NULL, 10);
  dense_words = strtoull(arguments[3], NULL, 10) << 17;
  const uint64_t passes = strtoull(arguments[4], NULL, 10);
  const int in_order = strcmp(arguments[5], "in-order") == 0;
  touched = table_words / kPageWords / each;
  void* mapped = mmap(NULL, table_words * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  table = mapped;
  if (mapped == MAP_FAILED) {
    return 2;
  }
  for (uint64_t count = 0; count < touched; ++count) {
    const uint64_t index = in_order ? count : count * kPrime % touched;
    page_of(index)[index % kPageWords] = index + 1;
  }
  dense = calloc(dense_words, 8);
  for (uint64_t pass = 0; pass < passes; ++pass) {
    go_over_dense(pass);
    check_table(0);
  }
  check_what_is_zero(0);
  check_in_child();
  check_table(0);
  fill_and_give_up(table_words);
  printf("wrong %llu\n", (unsigned long long)wrong);
  return wrong != 0;
}
