// A forked child that writes to all that its parent has, and lives on for some seconds: both have it all then.
//
//   fork_keeps MEBIBYTES
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void pass(uint64_t* memory, size_t words, uint64_t mark, size_t* wrong) {
  for (size_t at = 0; at < words; at += 64) {
    *wrong += memory[at] != (at ^ mark);
    memory[at] = at ^ (mark + 1);
  }
}

int main(int count, char** arguments) {
  size_t words = (size_t)atol(arguments[count - 1]) << 17, wrong = 0;
  uint64_t* memory = malloc(words * 8);
  for (size_t at = 0; at < words; at += 64) memory[at] = at ^ 1;
  int ready[2];
  char byte = 0;
  if (pipe(ready) != 0) return 2;
  pid_t child = fork();
  if (child == 0) {
    pass(memory, words, 1, &wrong);
    if (write(ready[1], "r", 1) != 1) _exit(3);
    sleep(2);
    pass(memory, words, 2, &wrong);
    _exit(wrong != 0);
  }
  if (read(ready[0], &byte, 1) != 1) return 4;
  for (int round = 1; round <= 4; ++round) {
    pass(memory, words, (uint64_t)round, &wrong);
    usleep(500000);
  }
  int status = 1;
  waitpid(child, &status, 0);
  printf("wrong %zu, child %d\n", wrong, status);
  return 0;
}
