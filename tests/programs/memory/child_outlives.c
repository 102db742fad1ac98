/* Reads words at random of an array of MIB, and ends at once after a fork; the child does nothing until the file GO is there,
   and removes it. usage: child_outlives MIB GO */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char** argv) {
  const uint64_t words = argc == 3 ? strtoull(argv[1], NULL, 10) << 17 : 1;
  uint64_t *array = malloc(words * sizeof *array), at = 1, wrong = 0;
  for (uint64_t i = 0; i < words; ++i) {
    array[i] = i;
  }
  for (int access = 0; access < 5000; ++access) {
    at = at * 6364136223846793005u + 1442695040888963407u;
    wrong += array[(at >> 20) % words] != (at >> 20) % words;
  }
  if (argc == 3 && fork() == 0) {
    fclose(stdout);
    fclose(stderr);
    while (access(argv[2], F_OK) != 0) {
      usleep(1000);
    }
    unlink(argv[2]);
    _exit(0);
  }
  return wrong != 0;
}
