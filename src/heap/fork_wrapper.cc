// fork(), and the ways to end a process past its exit handlers. For those to become another program see exec_wrappers.cc.
//
// fork() by a thread whose own stack lies in evictable memory (pthread_attr_setstack, a coroutine's stack) cannot work: a
// child begins without that memory, and its first instruction needs the stack. The program is told so, instead of a child that
// crashes. All else that fork needs is done by handlers (preload/process.cc).
//
// A parent that leaves by _exit() would take memory with it that its forked children still need, so they get it first; and it
// leaves the node as others do, since the last of them writes the report. daemon() forks and leaves inside the C library, where
// it cannot be seen; it is written anew here.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "heap/held_calls.h"
#include "heap/leaving.h"

namespace {

using namespace headroom;

HEADROOM_REAL(fork);
HEADROOM_REAL(_exit);
HEADROOM_REAL(quick_exit);

}  // namespace

HEADROOM_EXPORT pid_t fork() noexcept {
  if (headroom::pager::covers(__builtin_frame_address(0)) && !headroom::pager::is_forked_child()) {
    headroom::base::log_warning(
        "fork() by a thread whose stack lies in memory that may be moved to storage is not possible; the program is told that "
        "memory is exhausted. Raise --large above the size of such stacks");
    errno = ENOMEM;
    return -1;
  }
  if ((pager::is_running() || pager::is_forked_child()) && !pager::try_descriptors_for_fork()) {
    static std::atomic<bool> said{false};
    if (!said.exchange(true, std::memory_order_relaxed)) {
      base::log_warning(pager::is_forked_child()
                            ? "a forked child cannot fork in turn where /proc/self/maps cannot be read, or no descriptor is "
                              "left; the program is told that memory is exhausted. Mount /proc, or raise `ulimit -n`"
                            : "fork() needs five descriptors for the child's copy of memory, and there are none left; "
                              "the program is told that memory is exhausted. Raise `ulimit -n`");
    }
    errno = ENOMEM;
    return -1;
  }
  const pid_t child = real_fork.get()();
  if (child > 0 && pager::take_fork_failure()) {  // there were no descriptors, or no memory, after all
    while (base::system_call(SYS_wait4, child, nullptr, __WALL, nullptr) == -EINTR) {
    }
    errno = ENOMEM;
    return -1;
  }
  if (child > 0 && pager::is_running() && !pager::is_forked_child()) {
    pager::note_forked(child);
  }
  return child;
}

HEADROOM_EXPORT void _exit(int status) {
  headroom::heap::complete_children();
  (void)headroom::heap::leave_node();
  real__exit.get()(status);
  __builtin_unreachable();
}
HEADROOM_EXPORT void _Exit(int status) noexcept { _exit(status); }
HEADROOM_EXPORT void quick_exit(int status) noexcept {
  headroom::heap::complete_children();
  (void)headroom::heap::leave_node();
  real_quick_exit.get()(status);
  __builtin_unreachable();
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
