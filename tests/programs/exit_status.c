/* Ends with the status that it is told. No MPI. */
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
  char *memory = malloc(8 << 20);
  memset(memory, 1, 8 << 20);
  const int status = argc > 1 ? atoi(argv[1]) : 0;
  free(memory);
  return status;
}
