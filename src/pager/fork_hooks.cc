// What happens around fork(), in the order in which it has to; the work is in fork.cc and fork_child.cc.
#include "base/log.h"
#include "pager/fork.h"
#include "pager/forked_children.h"
#include "pager/pager.h"
#include "pager/requests.h"
#include "pager/signals.h"
#include "pager/state.h"
#include "pager/transition_lock.h"
#include "trace/counters.h"
#include "trace/recorder.h"

namespace headroom::pager {
namespace {

/// Of the thread that forks. What before_fork() has done, the others end: the pager may have started in between.
struct Prepared {
  bool done;
  bool failed;       // there were no descriptors or addresses for the child's copy
  uint64_t signals;  // that were blocked before
};
thread_local constinit Prepared prepared __attribute__((tls_model("initial-exec"))) = {};
thread_local constinit bool fork_failed __attribute__((tls_model("initial-exec"))) = false;

}  // namespace

void before_fork() {
  if (is_forked_child()) {
    make_private_in_child();
    return;
  }
  if (!is_running()) {
    return;
  }
  const uint64_t signals = block_signals();
  // Only what is watched can be kept as it was. And the lock's holder may have its stack in evictable memory, where a write
  // waits for the child from the moment on when memory is protected: so the lock comes before, and since arming takes it, too,
  // that comes first. (An armed pager never takes it.)
  Request request = {};
  request.kind = RequestKind::kArm;
  perform(request);
  transition_lock.lock();
  request = {};
  request.kind = RequestKind::kFork;
  perform(request);
  const bool failed = request.status != base::Status::kOk;
  if (failed) {
    base::log_warning("no descriptors or addresses for a fork's copy of memory (see `ulimit -n`): the fork fails");
  }
  prepared = {true, failed, signals};
}

void after_fork_in_parent() {
  const Prepared before = prepared;
  if (before.done) {
    prepared = {};
    fork_failed = before.failed;
    transition_lock.unlock();
    finish_fork_in_parent();
    restore_signals(before.signals);
  }
}

void after_fork_in_child() {
  if (is_forked_child()) {
    finish_fork_in_grandchild();
    return;
  }
  const Prepared before = prepared;
  prepared = {};
  if (!before.done) {
    if (detail::progress.load(std::memory_order_relaxed) != 0) {  // another thread has begun to start it: not in this process
      detail::progress.store(3, std::memory_order_release);
      trace::stop_counting();
      trace::stop_recording();
    }
    return;
  }
  if (before.failed) {  // the parent tells the program so, where it sees the call; nobody has seen this process
    for (;;) {
      (void)base::system_call(SYS_exit_group, 127);
    }
  }
  base::set_death_hook(nullptr);
  detail::progress.store(3, std::memory_order_release);
  state.forked_child.store(true, std::memory_order_release);
  transition_lock.reset();
  forget_signals_of_parent();
  trace::stop_counting();
  trace::stop_recording();
  finish_fork_in_child();
  node::forget_session_in_child(detail::the_session);
  restore_signals(before.signals);
}

void program_is_replaced(bool replaced) {
  // A child of vfork() sees its parent's memory.
  if (is_running() && !is_forked_child() &&
      base::system_call(SYS_getpid) == detail::the_session.self->pid.load(std::memory_order_relaxed)) {
    std::atomic<uint32_t>& replacing = detail::the_session.self->replacing;  // by how many threads
    replaced ? replacing.fetch_add(1, std::memory_order_release) : replacing.fetch_sub(1, std::memory_order_release);
  }
}

bool take_fork_failure() {
  const bool failed = fork_failed;
  fork_failed = false;
  return failed;
}

void prepare_to_leave() {
  if (!has_fork_children()) {
    return;
  }
  Request request = {};
  request.kind = RequestKind::kComplete;
  perform(request);
}

}  // namespace headroom::pager
