/* What becomes of a forked child that still needs its parent's memory when the parent goes first: killed with it if the parent
   is killed; complete if the parent leaves in order (exit, _exit, another program, daemon), or if the child has closed every
   descriptor that it did not open, upwards or downwards; untouched if it has become another program meanwhile, with a helper
   of its own still around. The parent is a process of its own, so that somebody is left to look.
   usage: fork_orphan killed|leaves|_exits|replaced|daemon|closes|downwards|helper MIB */
#define _GNU_SOURCE
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pressure.h"

extern char** environ;

static int child(const unsigned char* array, const char* how, int go, pid_t parent) {
  char byte;
  if (how[0] == 'h') {
    if (fork() == 0) {
      usleep(700000);
      _exit(0);
    }
    execlp("sleep", "sleep", "1", NULL);
  }
  if (how[0] == 'c') {
    CHECK((go == 3 || close_range(3, (unsigned)go - 1, 0) == 0) && close_range((unsigned)go + 1, ~0u, 0) == 0);
    CHECK(read(go, &byte, 1) == 1);
  } else if (how[0] == 'd' && how[1] == 'o') {
    for (int file = 1023; file > 2; --file) {
      if (file != go) {
        close(file);
      }
    }
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
  if (how[0] == 'd' && how[1] == 'a') {
    CHECK(daemon(1, 1) == 0); /* the rest is the daemon's */
    usleep(200000);
    exit(same(array, bytes, 3) ? 0 : 1);
  }
  const pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    CHECK(write(ready[1], "x", 1) == 1);
    _exit(child(array, how, go[0], self));
  }
  CHECK(read(ready[0], &byte, 1) == 1);
  if (how[0] == 'k') {
    kill(self, SIGKILL);
  }
  if (how[0] == 'l') {
    exit(0);
  }
  if (how[0] == '_') {
    _exit(0);
  }
  if (how[0] == 'r') {
    execl("/bin/true", "true", NULL);
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
  if (strchr("kl_r", argv[1][0]) != NULL || strcmp(argv[1], "daemon") == 0) {
    CHECK(wait(&status) > 0);
    printf("child %d\n", status);
  }
  return 0;
}
