// fork(), and the ways to leave a process past its exit handlers.
//
// fork() by a thread whose own stack lies in evictable memory (pthread_attr_setstack, a coroutine's stack) cannot work: a
// child begins without that memory, and its first instruction needs the stack. The program is told so, instead of a child that
// crashes. All else that fork needs is done by handlers (preload/process.cc).
//
// A parent that leaves by _exit() or replaces its program takes with it what its forked children still need, so they get it
// first. daemon() forks and leaves inside the C library, where it cannot be seen; it is written anew here.
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "heap/held_calls.h"
#include "heap/limits.h"

namespace {

using headroom::heap::LimitsInEffect;
using headroom::pager::prepare_to_leave;

/// Not in a forked child, which has no children to look after, nor in one by vfork, which runs in its parent's memory.
void complete_children() {
  if (headroom::pager::is_running() && headroom::pager::session().self->pid.load(std::memory_order_relaxed) == getpid()) {
    prepare_to_leave();
  }
}

constexpr size_t kMostArguments = 4096;

/// The arguments of execl() and its kin; false if there are too many.
bool collect(const char* first, va_list arguments, const char** out) {
  size_t count = 0;
  for (const char* argument = first; count < kMostArguments; argument = va_arg(arguments, const char*)) {
    out[count++] = argument;
    if (argument == nullptr) {
      return true;
    }
  }
  errno = E2BIG;
  return false;
}

HEADROOM_REAL(fork);
HEADROOM_REAL(_exit);
HEADROOM_REAL(quick_exit);
HEADROOM_REAL(execve);
HEADROOM_REAL(execv);
HEADROOM_REAL(execvp);
HEADROOM_REAL(execvpe);
HEADROOM_REAL(fexecve);

}  // namespace

HEADROOM_EXPORT pid_t fork() noexcept {
  if (headroom::pager::covers(__builtin_frame_address(0)) && !headroom::pager::is_forked_child()) {
    headroom::base::log_warning(
        "fork() by a thread whose stack lies in memory that may be moved to storage is not possible; the program is told that "
        "memory is exhausted. Raise --large above the size of such stacks");
    errno = ENOMEM;
    return -1;
  }
  return real_fork.get()();
}

HEADROOM_EXPORT void _exit(int status) {
  complete_children();
  real__exit.get()(status);
  __builtin_unreachable();
}
HEADROOM_EXPORT void _Exit(int status) noexcept { _exit(status); }
HEADROOM_EXPORT void quick_exit(int status) noexcept {
  complete_children();
  real_quick_exit.get()(status);
  __builtin_unreachable();
}

HEADROOM_EXPORT int execve(const char* path, char* const arguments[], char* const environment[]) noexcept {
  complete_children();
  const LimitsInEffect limits;
  return real_execve.get()(path, arguments, environment);
}
HEADROOM_EXPORT int execv(const char* path, char* const arguments[]) noexcept {
  complete_children();
  const LimitsInEffect limits;
  return real_execv.get()(path, arguments);
}
HEADROOM_EXPORT int execvp(const char* file, char* const arguments[]) noexcept {
  complete_children();
  const LimitsInEffect limits;
  return real_execvp.get()(file, arguments);
}
HEADROOM_EXPORT int execvpe(const char* file, char* const arguments[], char* const environment[]) noexcept {
  complete_children();
  const LimitsInEffect limits;
  return real_execvpe.get()(file, arguments, environment);
}
HEADROOM_EXPORT int fexecve(int file, char* const arguments[], char* const environment[]) noexcept {
  complete_children();
  const LimitsInEffect limits;
  return real_fexecve.get()(file, arguments, environment);
}
HEADROOM_EXPORT int execl(const char* path, const char* first, ...) noexcept {
  const char* words[kMostArguments];
  va_list arguments;
  va_start(arguments, first);
  const bool fits = collect(first, arguments, words);
  va_end(arguments);
  return fits ? execv(path, const_cast<char* const*>(words)) : -1;
}
HEADROOM_EXPORT int execlp(const char* file, const char* first, ...) noexcept {
  const char* words[kMostArguments];
  va_list arguments;
  va_start(arguments, first);
  const bool fits = collect(first, arguments, words);
  va_end(arguments);
  return fits ? execvp(file, const_cast<char* const*>(words)) : -1;
}
HEADROOM_EXPORT int execle(const char* path, const char* first, ...) noexcept {
  const char* words[kMostArguments];
  va_list arguments;
  va_start(arguments, first);
  const bool fits = collect(first, arguments, words);
  char* const* environment = fits ? va_arg(arguments, char* const*) : nullptr;
  va_end(arguments);
  return fits ? execve(path, const_cast<char* const*>(words), environment) : -1;
}

HEADROOM_EXPORT int daemon(int keep_directory, int keep_files) noexcept {
  const pid_t child = fork();
  if (child < 0) {
    return -1;
  }
  if (child > 0) {
    _exit(0);
  }
  if (setsid() < 0 || (keep_directory == 0 && chdir("/") != 0)) {
    return -1;
  }
  if (keep_files == 0) {
    const int null = open("/dev/null", O_RDWR);
    if (null < 0) {
      return -1;
    }
    for (int file = 0; file <= 2; ++file) {
      dup2(null, file);
    }
    if (null > 2) {
      close(null);
    }
  }
  return 0;
}
