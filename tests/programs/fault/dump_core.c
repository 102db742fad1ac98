/* Ends with a core dump while most of its memory is on storage. usage: dump_core MIB */
#include "pressure.h"

int main(int argc, char** argv) {
  (void)argc;
  bytes = (size_t)atoi(argv[1]) << 20;
  unsigned char* content = malloc(bytes);
  pressure = malloc(bytes);
  fill(content, bytes, 1);
  press();
  CHECK(same(content, bytes, 1));
  abort();
}
