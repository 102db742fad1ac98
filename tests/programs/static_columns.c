/* Goes over a static matrix, whose last block is not a whole one, column by column, and checks it. Prints "wrong 0". */
#include <stdint.h>
#include <stdio.h>

enum { kRows = 1001, kColumns = 8192 };
static uint64_t matrix[kRows][kColumns];

int main(void) {
  uint64_t wrong = 0;
  for (uint64_t row = 0; row < kRows; ++row) {
    for (uint64_t column = 0; column < kColumns; ++column) {
      matrix[row][column] = (row * kColumns + column) * 31;
    }
  }
  for (uint64_t column = 0; column < kColumns; ++column) {
    for (uint64_t row = 0; row < kRows; ++row) {
      wrong += matrix[row][column] != (row * kColumns + column) * 31;
    }
  }
  printf("wrong %llu\n", (unsigned long long)wrong);
  return wrong != 0;
}
