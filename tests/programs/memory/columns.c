/* Turns a matrix of N by N round, column by column, and checks it. Prints "wrong 0". usage: columns N */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  const uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  uint64_t *from = malloc(n * n * 8), *to = malloc(n * n * 8), wrong = 0;
  for (uint64_t i = 0; i < n * n; ++i) {
    from[i] = i * 31;
  }
  for (uint64_t column = 0; column < n; ++column) {
    for (uint64_t row = 0; row < n; ++row) {
      to[column * n + row] = from[row * n + column];
    }
  }
  for (uint64_t column = 0; column < n; ++column) {
    for (uint64_t row = 0; row < n; ++row) {
      wrong += to[column * n + row] != (row * n + column) * 31;
    }
  }
  printf("wrong %llu\n", (unsigned long long)wrong);
  free(from);
  free(to);
  return wrong != 0;
}
