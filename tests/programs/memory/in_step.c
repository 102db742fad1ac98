/* Goes over several arrays in step, as loops over the fields of a grid do, updates the last and checks it. Prints "wrong 0"
   and, for each pass, the MiB that were read from storage. usage: in_step ARRAYS MIB PASSES (MIB: of all together) */
#include <headroom/headroom.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kMostArrays = 64 };

static uint64_t bytes_read(void) {
  struct headroom_statistics now = {.size = sizeof now};
  return headroom_read_statistics != NULL && headroom_read_statistics(&now) == 0 ? now.read_bytes : 0;
}

int main(int argc, char** argv) {
  const int count = argc > 3 ? atoi(argv[1]) : 0, passes = argc > 3 ? atoi(argv[3]) : 0;
  if (count < 2 || count > kMostArrays) {
    return 2;
  }
  const uint64_t words = (strtoull(argv[2], NULL, 10) << 17) / (uint64_t)count;
  uint64_t *arrays[kMostArrays], wrong = 0;
  for (int each = 0; each < count; ++each) {
    arrays[each] = malloc(words * 8);
  }
  for (uint64_t i = 0; i < words; ++i) {
    for (int each = 0; each < count; ++each) {
      arrays[each][i] = i * 31 + (uint64_t)each;
    }
  }
  uint64_t* const last = arrays[count - 1];
  for (int pass = 0; pass < passes; ++pass) {
    const uint64_t before = bytes_read();
    for (uint64_t i = 0; i < words; ++i) {
      uint64_t sum = 0, expected = 0;
      for (int each = 0; each < count - 1; ++each) {
        sum += arrays[each][i];
        expected += i * 31 + (uint64_t)each;
      }
      wrong += sum != expected || last[i] != i * 31 + (uint64_t)(count - 1) + (uint64_t)pass * expected;
      last[i] += sum;
    }
    printf("pass %d read %llu\n", pass, (unsigned long long)((bytes_read() - before) >> 20));
  }
  printf("wrong %llu\n", (unsigned long long)wrong);
  return wrong != 0;
}
