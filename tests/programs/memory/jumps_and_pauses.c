/* Reads words at random of an array of MIB, sleeps for a second, and reads others. With GO it ends at once after a fork
   instead; the child does nothing until the file GO is there, and removes it. usage: jumps_and_pauses MIB [GO] */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static uint64_t* array;
static uint64_t words, at = 1;

static uint64_t jump(int count) {
  uint64_t wrong = 0;
  for (int access = 0; access < count; ++access) {
    at = at * 6364136223846793005u + 1442695040888963407u;
    wrong += array[(at >> 20) % words] != (at >> 20) % words;
  }
  return wrong;
}

int main(int argc, char** argv) {
  words = argc > 1 ? strtoull(argv[1], NULL, 10) << 17 : 1;
  array = malloc(words * sizeof *array);
  for (uint64_t i = 0; i < words; ++i) {
    array[i] = i;
  }
  uint64_t wrong = jump(5000);
  if (argc < 3) {
    sleep(1);
    wrong += jump(5000);
  } else if (fork() == 0) {
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
