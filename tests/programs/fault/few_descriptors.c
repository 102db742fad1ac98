/* Forks with hardly any descriptor left: the fork fails with an error, or the child has all that its parent had. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kBytes = 16 << 20, kMost = 400 };

static int is_filled(const char* memory) {
  for (int at = 0; at < kBytes; at += 4096) {
    if (memory[at] != (char)(at >> 12)) {
      return 0;
    }
  }
  return 1;
}

int main(void) {
  char* memory = malloc(kBytes);
  for (int at = 0; at < kBytes; at += 4096) {
    memory[at] = (char)(at >> 12);
  }
  const struct rlimit few = {kMost, kMost};
  setrlimit(RLIMIT_NOFILE, &few);
  int opened[kMost], count = 0, forked = 0, refused = 0;
  while (count < kMost && (opened[count] = open("/dev/null", O_RDONLY)) >= 0) {
    ++count;
  }
  for (int left = 0; left <= 10; ++left) {
    if (left > 0) {
      close(opened[--count]);
    }
    const pid_t child = fork();
    if (child == 0) {
      _exit(is_filled(memory) ? 0 : 1);
    }
    int status = -1;
    if (child < 0 && errno == ENOMEM) {
      ++refused;
    } else if (child > 0 && waitpid(child, &status, 0) == child && status == 0) {
      ++forked;
    } else {
      printf("wrong: %d left, status %#x, %s\n", left, status, strerror(errno));
      return 1;
    }
  }
  printf("%s, forked %d, refused %d\n", is_filled(memory) ? "right" : "wrong", forked, refused);
  return 0;
}
