/* Every way to allocate: alignment, content while memory is short, zeros from calloc in memory that was used before; and
   children that are started without copying memory. Prints "ok". usage: allocations MIB */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pressure.h"

enum { kMiB = 1 << 20, kCount = 9 };

static int is_zero(const unsigned char* buffer, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (buffer[i] != 0) {
      return 0;
    }
  }
  return 1;
}

int main(int argc, char** argv) {
  (void)argc;
  bytes = (size_t)atoi(argv[1]) << 20;
  pressure = malloc(bytes);
  memset(pressure, 0, bytes);
  for (int round = 0; round < 3; ++round) {
    unsigned char* all[kCount];
    const size_t count = 2 * kMiB + 4096 * (size_t)round;
    all[0] = malloc(count);
    all[1] = calloc(count / 8, 8);
    all[2] = memalign(1 << 16, count);
    all[3] = valloc(count);
    all[4] = pvalloc(count - 1);
    all[5] = aligned_alloc(4096, count);
    all[6] = reallocarray(NULL, count / 16, 16);
    all[7] = realloc(malloc(100), count);
    CHECK(posix_memalign((void**)&all[8], kMiB, count) == 0);
    CHECK(is_zero(all[1], count)); /* the places were used in the round before */
    CHECK((uintptr_t)all[2] % (1 << 16) == 0 && (uintptr_t)all[3] % 4096 == 0 && (uintptr_t)all[4] % 4096 == 0);
    CHECK((uintptr_t)all[5] % 4096 == 0 && (uintptr_t)all[8] % kMiB == 0);
    for (unsigned i = 0; i < kCount; ++i) {
      CHECK(all[i] != NULL && malloc_usable_size(all[i]) >= count - (i == 4));
      fill(all[i], count, i);
    }
    press();
    for (unsigned i = 0; i < kCount; ++i) {
      CHECK(same(all[i], count, i));
    }
    for (unsigned i = 0; i < kCount; ++i) { /* larger and smaller, aligned or not */
      all[i] = reallocarray(all[i], 3 * kMiB + i, 1);
      CHECK(all[i] != NULL && same(all[i], count, i));
      all[i] = realloc(all[i], kMiB + 5);
    }
    press();
    for (unsigned i = 0; i < kCount; ++i) {
      CHECK(same(all[i], kMiB + 5, i));
      free(all[i]);
    }
  }
  CHECK(reallocarray(NULL, SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);
  CHECK(mlockall(MCL_CURRENT) == -1 && errno == EPERM);
  char line[20];
  FILE* pipe = popen("echo from a shell", "r");
  CHECK(pipe != NULL && fgets(line, sizeof line, pipe) != NULL && strcmp(line, "from a shell\n") == 0);
  CHECK(pclose(pipe) == 0 && system("true") == 0);
  printf("ok\n");
  return 0;
}
