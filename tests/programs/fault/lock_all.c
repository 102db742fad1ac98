/* Asks for all memory to be locked, now and in future, before there is any. usage: lock_all MIB */
#include <sys/mman.h>

#include "pressure.h"

int main(int argc, char** argv) {
  (void)argc;
  bytes = (size_t)atoi(argv[1]) << 20;
  CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == -1 && errno == EPERM);
  unsigned char* content = malloc(bytes);
  pressure = malloc(bytes);
  fill(content, bytes, 1);
  press();
  CHECK(same(content, bytes, 1));
  printf("ok\n");
  return 0;
}
