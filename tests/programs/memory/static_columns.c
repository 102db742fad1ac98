/* Goes over a static matrix, whose last block is not a whole one, column by column, and checks it; so often as said, each time
 * but the last changing what it has read. Prints "wrong 0". */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kRows = 1001, kColumns = 8192 };
static uint64_t matrix[kRows][kColumns];

int main(int argument_count, char** arguments) {
  const uint64_t passes = argument_count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
  uint64_t wrong = 0;
  for (uint64_t row = 0; row < kRows; ++row) {
    for (uint64_t column = 0; column < kColumns; ++column) {
      matrix[row][column] = (row * kColumns + column) * 31;
    }
  }
  for (uint64_t pass = 0; pass < passes; ++pass) {
    for (uint64_t column = 0; column < kColumns; ++column) {
      for (uint64_t row = 0; row < kRows; ++row) {
        wrong += matrix[row][column] != (row * kColumns + column) * 31 + pass;
        if (pass + 1 < passes) {
          ++matrix[row][column];
        }
      }
    }
  }
  printf("wrong %llu\n", (unsigned long long)wrong);
  return wrong != 0;
}
