/* Reserves 8 GiB outside of evictable memory and reads a page of each 2 MiB, if it is to: 16 MiB of page tables, all of whose
   entries are the kernel's page of zeros. Then goes over more memory than there is. usage: page_tables MIB none|many */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "pressure.h"

enum { kEach = 2 << 20, kTables = 4096 };

int main(int argc, char** argv) {
  CHECK(argc == 3);
  bytes = strtoull(argv[1], NULL, 10) << 20;
  const size_t size = (size_t)kTables * kEach;
  void* reserved = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(reserved != MAP_FAILED && mprotect(reserved, size, PROT_READ) == 0 && madvise(reserved, size, MADV_NOHUGEPAGE) == 0);
  const volatile char* mapped = reserved;
  long sum = 0;
  for (int each = 0; each < (strcmp(argv[2], "many") == 0 ? kTables : 1); ++each) {
    sum += mapped[(size_t)each * kEach];
  }
  pressure = malloc(bytes);
  CHECK(pressure != NULL);
  press();
  printf("sum %ld\n", sum);
  return 0;
}
