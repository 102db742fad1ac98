/* Uses 32 MiB and ends past the C library, as programs do that make their system calls themselves.
   usage: raw_exit instruction|syscall|return [SECONDS]; status 3 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char** argv) {
  const size_t bytes = 32 << 20;
  char* memory = malloc(bytes);
  for (int round = 0; round < 2; ++round) {
    memset(memory, round + 1, bytes);
  }
  if (argc > 2) {
    sleep((unsigned)atoi(argv[2]));
  }
  if (strcmp(argv[1], "syscall") == 0) {
    syscall(SYS_exit_group, 3);
  }
#if defined(__x86_64__)
  if (strcmp(argv[1], "instruction") == 0) {
    __asm__ volatile("syscall" : : "a"(SYS_exit_group), "D"(3));
  }
#endif
  return 3;
}
