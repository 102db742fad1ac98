/* Calls whose paths, structures and lists lie in memory that is on storage when the kernel wants them. Prints "ok" or what went
   wrong. usage: structures MIB DIRECTORY */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pressure.h"

enum { kMiB = 1 << 20 };
static char* place;

/* A zeroed piece of evictable memory, each in blocks of its own. */
static void* piece(int index) { return memset(place + (size_t)index * kMiB, 0, PATH_MAX); }

static void usage_and_clocks(void) {
  struct rusage* usage = piece(0);
  struct tms* clocks = piece(1);
  struct sysinfo* system = piece(2);
  struct utsname* names = piece(3);
  struct timespec* wanted = piece(4);
  struct timespec* left = piece(5);
  struct itimerval *timer = piece(6), *timer_before = piece(7);
  cpu_set_t* processors = piece(8);
  wanted->tv_nsec = 1000;
  timer->it_value.tv_sec = 1000;
  press();
  CHECK(getrusage(RUSAGE_SELF, usage) == 0 && usage->ru_maxrss > 0);
  CHECK(times(clocks) != (clock_t)-1 && clocks->tms_utime + clocks->tms_stime > 0);
  CHECK(sysinfo(system) == 0 && system->totalram > 0);
  CHECK(uname(names) == 0 && strcmp(names->sysname, "Linux") == 0);
  CHECK(nanosleep(wanted, left) == 0);
  press();
  CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, wanted, left) == 0);
  CHECK(setitimer(ITIMER_REAL, timer, timer_before) == 0 && timer_before->it_value.tv_sec == 0);
  press();
  CHECK(getitimer(ITIMER_REAL, timer_before) == 0 && timer_before->it_value.tv_sec > 900);
  timer->it_value.tv_sec = 0;
  CHECK(setitimer(ITIMER_REAL, timer, NULL) == 0);
  press();
  CHECK(sched_getaffinity(0, sizeof *processors, processors) == 0 && CPU_COUNT(processors) > 0);
  press();
  CHECK(sched_setaffinity(0, sizeof *processors, processors) == 0);
}

static void descriptors(const char* directory) {
  int* ends = piece(0);
  int* more = piece(1);
  struct epoll_event *wanted = piece(2), *seen = piece(3);
  struct sockaddr_un *address = piece(4), *peer = piece(5);
  socklen_t* length = piece(6);
  fd_set* readable = piece(7);
  struct timespec* timeout = piece(8);
  sigset_t* mask = piece(9);
  press();
  CHECK(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
  press();
  CHECK(pipe2(more, O_CLOEXEC) == 0 && close(more[0]) == 0 && close(more[1]) == 0);
  press();
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, more) == 0 && close(more[0]) == 0 && close(more[1]) == 0);
  wanted->events = EPOLLIN;
  const int waiting = epoll_create1(EPOLL_CLOEXEC);
  press();
  CHECK(epoll_ctl(waiting, EPOLL_CTL_ADD, ends[0], wanted) == 0);
  press();
  CHECK(epoll_pwait(waiting, seen, 1, 0, mask) == 1 && (seen->events & EPOLLIN) != 0);
  FD_SET(ends[0], readable);
  press();
  CHECK(pselect(ends[0] + 1, readable, NULL, NULL, timeout, mask) == 1 && FD_ISSET(ends[0], readable));

  address->sun_family = AF_UNIX;
  snprintf(address->sun_path, sizeof address->sun_path, "%s/socket", directory);
  *length = sizeof *address;
  const int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
  press();
  CHECK(bind(server, (struct sockaddr*)address, sizeof *address) == 0 && listen(server, 1) == 0);
  press();
  CHECK(connect(client, (struct sockaddr*)address, sizeof *address) == 0);
  press();
  const int accepted = accept(server, (struct sockaddr*)peer, length);
  CHECK(accepted >= 0 && *length > 0);
  *length = sizeof *peer;
  press();
  CHECK(getpeername(client, (struct sockaddr*)peer, length) == 0 && strcmp(peer->sun_path, address->sun_path) == 0);
  *length = sizeof *peer;
  press();
  CHECK(getsockname(server, (struct sockaddr*)peer, length) == 0 && strcmp(peer->sun_path, address->sun_path) == 0);
  press();
  CHECK(unlink(address->sun_path) == 0);
  close(accepted);
  close(client);
  close(server);
  close(waiting);
  close(ends[0]);
  close(ends[1]);
}

static void signals(void) {
  sigset_t *set = piece(0), *pending = piece(1);
  siginfo_t* info = piece(2);
  int* number = piece(3);
  struct timespec* timeout = piece(4);
  sigaddset(set, SIGUSR2);
  timeout->tv_sec = 100;
  CHECK(sigprocmask(SIG_BLOCK, set, NULL) == 0);
  CHECK(raise(SIGUSR2) == 0);
  press();
  CHECK(sigpending(pending) == 0 && sigismember(pending, SIGUSR2) == 1);
  press();
  CHECK(sigwait(set, number) == 0 && *number == SIGUSR2);
  CHECK(raise(SIGUSR2) == 0);
  press();
  CHECK(sigwaitinfo(set, info) == SIGUSR2 && info->si_signo == SIGUSR2);
  CHECK(raise(SIGUSR2) == 0);
  press();
  CHECK(sigtimedwait(set, info, timeout) == SIGUSR2);
  CHECK(sigprocmask(SIG_UNBLOCK, set, NULL) == 0);
}

static void paths(const char* directory) {
  char *name = piece(0), *other = piece(1), *below = piece(2), *text = piece(3), *temporary = piece(4);
  struct statfs* system = piece(5);
  struct timespec* when = piece(6);
  struct stat status;
  snprintf(name, PATH_MAX, "%s/file", directory);
  snprintf(other, PATH_MAX, "%s/other", directory);
  snprintf(below, PATH_MAX, "%s/below", directory);
  snprintf(temporary, PATH_MAX, "%s/temporary-XXXXXX", directory);
  when[0].tv_sec = when[1].tv_sec = 1000000;
  press();
  CHECK(close(creat(name, 0600)) == 0);
  press();
  CHECK(truncate(name, 12345) == 0);
  press();
  CHECK(chmod(name, 0640) == 0);
  press();
  CHECK(utimensat(AT_FDCWD, name, when, 0) == 0);
  press();
  CHECK(link(name, other) == 0 && stat(other, &status) == 0 && status.st_size == 12345 && status.st_mtime == 1000000 &&
        (status.st_mode & 0777) == 0640 && status.st_nlink == 2);
  press();
  CHECK(unlinkat(AT_FDCWD, other, 0) == 0);
  press();
  CHECK(symlink(name, other) == 0);
  press();
  CHECK(readlinkat(AT_FDCWD, other, text, PATH_MAX) == (ssize_t)strlen(name));
  press();
  CHECK(realpath(other, text) != NULL && strcmp(text, name) == 0);
  press();
  CHECK(remove(other) == 0 && faccessat(AT_FDCWD, name, R_OK, 0) == 0);
  press();
  CHECK(mkdirat(AT_FDCWD, below, 0700) == 0);
  press();
  CHECK(chdir(below) == 0);
  press();
  CHECK(getcwd(text, PATH_MAX) != NULL && strcmp(text, below) == 0 && chdir("/") == 0);
  press();
  CHECK(rmdir(below) == 0);
  press();
  CHECK(statfs(directory, system) == 0 && system->f_bsize > 0);
  press();
  CHECK(close(mkstemp(temporary)) == 0);
  press();
  FILE* stream = freopen(temporary, "w", fopen(name, "r"));
  CHECK(stream != NULL && fclose(stream) == 0);
  press();
  CHECK(renameat(AT_FDCWD, temporary, AT_FDCWD, name) == 0);
  press();
  CHECK(unlink(name) == 0);
}

static void* press_on(void* ends) {
  while (!*(atomic_bool*)ends) {
    press();
  }
  return NULL;
}

/* While limits of the program's are in effect for a moment its storage is in use, and what the kernel wants is there, too. */
static void failing_executions(void) {
  static char* search;
  if (search == NULL) {
    search = piece(6);
    snprintf(search, PATH_MAX, "PATH=/nowhere:%s", getenv("PATH"));
    CHECK(putenv(search) == 0);
  }
  atomic_bool ends = false;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, press_on, &ends) == 0);
  for (int round = 0; round < 50; ++round) {
    char *path = strcpy(piece(3), "/nowhere"), *first = strcpy(piece(4), "nowhere");
    char** words = piece(5);
    words[0] = first;
    usleep(1000 * (round % 20));
    CHECK(execve(path, words, words) == -1 && errno == ENOENT);
    CHECK(execvp(path, words) == -1 && errno == ENOENT && strcmp(words[0], "nowhere") == 0);
    CHECK(execvp(first, words) == -1 && errno == ENOENT); /* along PATH, which is on storage */
    CHECK(execve(strcpy(path, "/bin"), words, words) == -1 && errno == EACCES);
  }
  ends = true;
  CHECK(pthread_join(thread, NULL) == 0);
}

/* What a program sets it is told again, and what it starts has it; this one goes on. */
static void limits(void) {
  struct rlimit *limit = piece(0), *before = piece(1);
  press();
  CHECK(getrlimit(RLIMIT_NOFILE, before) == 0 && before->rlim_cur > 0);
  *limit = *before;
  press();
  CHECK(setrlimit(RLIMIT_NOFILE, limit) == 0);
  press();
  CHECK(prlimit(0, RLIMIT_NOFILE, limit, before) == 0 && before->rlim_cur == limit->rlim_cur);
  const int which[] = {RLIMIT_AS, RLIMIT_FSIZE};
  for (int index = 0; index < 2; ++index) {
    CHECK(getrlimit(which[index], before) == 0);
    *limit = (struct rlimit){16 << 20, before->rlim_max};
    CHECK(setrlimit(which[index], limit) == 0);
    CHECK(getrlimit(which[index], limit) == 0 && limit->rlim_cur == 16 << 20 && limit->rlim_max == before->rlim_max);
    limit->rlim_cur = 2;
    limit->rlim_max = 1;
    CHECK(setrlimit(which[index], limit) == -1 && errno == EINVAL);
    press(); /* the storage grows beyond the limit of a file, and memory beyond that of addresses */
    void* map = mmap(NULL, 64 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); /* a thread's stack, say */
    CHECK(map != MAP_FAILED && munmap(map, 64 << 20) == 0);
    failing_executions();
    map = mmap(NULL, 64 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(map != MAP_FAILED && munmap(map, 64 << 20) == 0);
    unsetenv("LD_PRELOAD");
    char *shell = strcpy(piece(3), "/bin/sh"), *command = piece(4);
    strcpy(command, index == 0 ? "test $(ulimit -v) = 16384" : "test $(ulimit -f) = 32768");
    press();
    const pid_t child = fork();
    if (child == 0) { /* which has not touched what it gives, so it is not there yet */
      execl(shell, "sh", "-c", command, NULL);
      _exit(9);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && (index == 0 || WEXITSTATUS(status) == 0));
    CHECK(index == 1 || WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 127); /* too little even to start a shell */
    CHECK(setrlimit(which[index], before) == 0);
    struct rlimit real = {(rlim_t)1 << 46, before->rlim_max}; /* as a shell's ulimit: what is raised is in effect */
    CHECK(syscall(SYS_prlimit64, 0, which[index], &real, NULL) == 0 && setrlimit(which[index], before) == 0);
    CHECK(syscall(SYS_prlimit64, 0, which[index], NULL, &real) == 0 && real.rlim_cur == before->rlim_cur);
  }
}

int main(int count, char** arguments) {
  bytes = (size_t)atoi(arguments[1]) << 20;
  pressure = malloc(bytes);
  place = malloc(16 * kMiB);
  memset(place, 1, 16 * kMiB);
  CHECK(count == 3 && pressure != NULL);
  usage_and_clocks();
  descriptors(arguments[2]);
  signals();
  paths(arguments[2]);
  limits();
  puts("ok");
  return 0;
}
