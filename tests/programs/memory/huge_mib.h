/* What of this process's shared memory is mapped by huge pages, in MiB. */
#pragma once

#include <stdio.h>

static size_t huge_mib(void) {
  FILE* maps = fopen("/proc/self/smaps", "r");
  char line[512];
  size_t kib = 0, all = 0;
  while (fgets(line, sizeof line, maps) != NULL) {
    all += sscanf(line, "ShmemPmdMapped: %zu", &kib) == 1 ? kib : 0;
  }
  fclose(maps);
  return all / 1024;
}
