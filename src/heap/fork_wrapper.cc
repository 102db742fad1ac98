// fork() by a thread whose own stack lies in evictable memory (pthread_attr_setstack, a coroutine's stack) cannot work: a
// child begins without that memory, and its first instruction needs the stack. The program is told so, instead of a child that
// crashes. All else that fork needs is done by handlers (preload/process.cc).
#include <unistd.h>

#include "base/log.h"
#include "heap/held_calls.h"

namespace {
HEADROOM_REAL(fork);
}

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
