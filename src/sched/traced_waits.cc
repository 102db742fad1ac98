// See traced_waits.h.
#include "sched/traced_waits.h"

#include <algorithm>

#include "base/system_calls.h"
#include "sched/scheduler.h"
#include "sched/slots.h"
#include "sched/threads.h"

namespace headroom::sched {
namespace {

base::FutexLock telling;
bool said_blocked = false;  // under the lock

void record(uint64_t at_ns, uint32_t run_state) {
  trace::record({at_ns, trace::EventKind::kRunState, static_cast<uint16_t>(run_state), 0, {}});
}

/// Under the lock: says that the rank is blocked, if all its threads have waited for long: since the last of them began.
void say_if_blocked(uint64_t now) {
  uint64_t since = 0;
  for (const MpiThread& thread : known_threads()) {
    if (!thread.used.load(std::memory_order_acquire)) {
      continue;
    }
    const uint64_t began = thread.waits_since_ns.load(std::memory_order_acquire);
    if (began == 0) {
      return;
    }
    since = std::max(began, since);
  }
  if (since != 0 && since + kLongWaitNs <= now && !is_any_unknown()) {
    record(since, static_cast<uint32_t>(node::RunState::kBlocked));
    said_blocked = true;
  }
}

}  // namespace

bool TracedWait::begin() {
  if (mode() == Mode::kTurns) {
    return false;
  }
  MpiThread* thread = this_mpi_thread_if_known();  // a trace does not change which threads count
  if (thread == nullptr || thread->waits_since_ns.load(std::memory_order_relaxed) != 0) {
    return false;
  }
  thread->waits_since_ns.store(base::monotonic_ns(), std::memory_order_release);
  return true;
}

void TracedWait::end() {
  const uint64_t now = base::monotonic_ns();
  const base::LockHolder lock(telling);
  if (!said_blocked) {
    say_if_blocked(now);
  }
  this_mpi_thread_if_known()->waits_since_ns.store(0, std::memory_order_release);
  if (said_blocked) {
    said_blocked = false;
    record(now, self().turns.run_state.load(std::memory_order_relaxed));
  }
}

void look_at_traced_waits() {
  if (telling.try_lock()) {
    if (!said_blocked) {
      say_if_blocked(base::monotonic_ns());
    }
    telling.unlock();
  }
}

}  // namespace headroom::sched
