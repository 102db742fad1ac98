/* Ends with the status that it is told. No MPI. */
#include <stdlib.h>

int main(int argc, char** argv) {
  volatile char* memory = malloc(8 << 20);
  for (long at = 0; at < 8 << 20; at += 4096) {
    memory[at] = 1;
  }
  const int status = argc > 1 ? atoi(argv[1]) : 0;
  free((void*)memory);
  return status;
}
