/* fork() with a library's handlers (fork_handler_library.c) that write to evictable memory before and after it: the child sees
   what was written before. Prints "ok". usage: fork_handlers MIB */
#include <sys/wait.h>
#include <unistd.h>

#include "pressure.h"

extern volatile long* written_at_forks;

int main(int argc, char** argv) {
  CHECK(argc > 1);
  bytes = (size_t)atoi(argv[1]) << 20;
  unsigned char* array = malloc(bytes);
  pressure = malloc(bytes);
  fill(array, bytes, 3);
  long* counted = malloc(1 << 20);
  *counted = 0;
  press();
  written_at_forks = counted;
  for (long fork_number = 1; fork_number <= 2; ++fork_number) {
    press();
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      _exit(*counted == 2 * fork_number && same(array, bytes, 3) ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(*counted == 2 * fork_number && same(array, bytes, 3));
  }
  printf("ok\n");
  return 0;
}
