/* Goes over an array in order, backward, and then through its pages 0, 16, 32..., 1, 17, 33... Prints "wrong 0".
   usage: strided MIB */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kPageWords = 512, kStridePages = 16 };

int main(int argc, char** argv) {
  const uint64_t words = argc > 1 ? strtoull(argv[1], NULL, 10) << 17 : 0;
  uint64_t *array = malloc(words * 8), wrong = 0;
  for (uint64_t i = 0; i < words; ++i) {
    array[i] = i * 31;
  }
  for (int pass = 0; pass < 3; ++pass) {
    for (uint64_t i = 0; i < words; ++i) {
      wrong += array[i] != i * 31;
    }
  }
  for (uint64_t i = words; i-- > 0;) {
    wrong += array[i] != i * 31;
  }
  for (uint64_t begin = 0; begin < kStridePages; ++begin) {
    for (uint64_t page = begin; page < words / kPageWords; page += kStridePages) {
      for (uint64_t i = page * kPageWords; i < (page + 1) * kPageWords; ++i) {
        wrong += array[i] != i * 31;
      }
    }
  }
  printf("wrong %llu\n", (unsigned long long)wrong);
  free(array);
  return wrong != 0;
}
