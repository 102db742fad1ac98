/* What becomes of a forked child that still needs its parent's memory when the parent goes first: killed with it if the parent
   is killed; complete if the parent leaves in order, or if the child has closed every descriptor that it did not open.
   The parent is a process of its own, so that somebody is left to look. usage: fork_orphan killed|leaves|closes MIB */
#define _GNU_SOURCE
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pressure.h"

extern char** environ;

static int child(const unsigned char* array, int closes, int go, pid_t parent) {
  char byte;
  if (closes) {
    CHECK(close_range(3, (unsigned)go - 1, 0) == 0 && close_range((unsigned)go + 1, ~0u, 0) == 0);
    CHECK(read(go, &byte, 1) == 1);
  } else {
    while (getppid() == parent) {
      usleep(1000);
    }
    usleep(200000);
  }
  return same(array, bytes, 3) ? 0 : 1;
}

static void parent(const char* how) {
  unsigned char* array = malloc(bytes);
  pressure = malloc(bytes);
  fill(array, bytes, 3);
  press();
  int go[2], ready[2];
  char byte;
  CHECK(pipe(go) == 0 && pipe(ready) == 0);
  const pid_t self = getpid();
  const pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    CHECK(write(ready[1], "x", 1) == 1);
    _exit(child(array, how[0] == 'c', go[0], self));
  }
  CHECK(read(ready[0], &byte, 1) == 1);
  if (how[0] == 'k') {
    kill(self, SIGKILL);
  }
  if (how[0] == 'l') {
    exit(0);
  }
  usleep(200000);
  memset(array, 0, bytes);
  press();
  CHECK(write(go[1], "x", 1) == 1);
  int status;
  CHECK(waitpid(pid, &status, 0) == pid);
  printf("child %d\n", status);
  exit(0);
}

int main(int argc, char** argv) {
  bytes = (size_t)atoi(argv[2]) << 20;
  if (argc > 3) {
    parent(argv[1]);
  }
  CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
  pid_t pid;
  char* words[] = {argv[0], argv[1], argv[2], "parent", NULL};
  CHECK(posix_spawn(&pid, argv[0], NULL, NULL, words, environ) == 0);
  int status;
  CHECK(waitpid(pid, &status, 0) == pid);
  CHECK(argv[1][0] == 'k' ? WIFSIGNALED(status) : status == 0);
  if (argv[1][0] != 'c') {
    CHECK(wait(&status) > 0);
    printf("child %d\n", status);
  }
  return 0;
}
