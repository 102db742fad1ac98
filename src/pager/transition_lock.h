// The lock between program threads and the change from "memory is enough" to "memory is short" (claims.cc); private to
// src/pager.
#pragma once

#include <signal.h>

#include "base/system_calls.h"

namespace headroom::pager {

/// Held while memory is claimed, discarded or mapped without the pager's help, and while the process arms.
extern base::FutexLock transition_lock;

/// Blocks the signals of the calling thread, but for those that its own accesses cause.
inline uint64_t block_signals() {
  uint64_t all = ~uint64_t{0};
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) {
    all &= ~(uint64_t{1} << (own - 1));
  }
  uint64_t before = 0;
  (void)base::system_call(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
  return before;
}

inline void restore_signals(uint64_t before) {
  (void)base::system_call(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, sizeof before);
}

/// Holds the lock with signals blocked: a handler of the program's may write from evictable memory, and so may wait for the
/// lock.
class TransitionHolder {
 public:
  TransitionHolder() : before_(block_signals()) { transition_lock.lock(); }
  ~TransitionHolder() {
    transition_lock.unlock();
    restore_signals(before_);
  }
  TransitionHolder(const TransitionHolder&) = delete;
  TransitionHolder& operator=(const TransitionHolder&) = delete;

 private:
  uint64_t before_;
};

}  // namespace headroom::pager
