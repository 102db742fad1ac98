/* Uses up nearly all the mappings that a process may have, then needs more memory than there is. usage: many_maps MIB */
#include <sys/mman.h>

#include "pressure.h"

int main(int argc, char** argv) {
  (void)argc;
  long most = 65530;
  FILE* limit = fopen("/proc/sys/vm/max_map_count", "r");
  CHECK(limit != NULL && fscanf(limit, "%ld", &most) == 1);
  fclose(limit);
  char* pages = mmap(NULL, (size_t)most * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(pages != MAP_FAILED);
  for (long page = 0; page < most - 120; page += 2) {
    CHECK(mprotect(pages + page * 4096, 4096, PROT_NONE) == 0);
  }
  bytes = (size_t)atoi(argv[1]) << 20;
  pressure = malloc(bytes);
  for (size_t round = 0; round < 4; ++round) {
    for (size_t block = 0; block < bytes >> 18; block += 2) { /* every other one, so that neighbours differ */
      pressure[(block << 18) + round]++;
    }
    press();
  }
  printf("ok\n");
  return 0;
}
