// See preemption.h. All but watch_long_turns() runs on the pager's thread.
#include "sched/preemption.h"

#include "base/system_calls.h"
#include "pager/pager.h"
#include "sched/scheduler.h"
#include "sched/slots.h"
#include "sched/turn.h"
#include "trace/counters.h"

namespace headroom::sched {
namespace {

constexpr uint64_t kPatienceNs = kOverdueNs / 2;

bool cut_short = false;
uint64_t since_ns = 0;

/// The program may have got a slot meanwhile: another of its threads came back from MPI.
void go_on() {
  cut_short = false;
  begin_turn();
  trace::count(trace::Counter::kSlotWaitNs, base::monotonic_ns() - since_ns);
}

bool must_wait() {
  const uint64_t now = base::monotonic_ns();
  if (!cut_short) {
    if (!has_slot() || now - turn_began_at() < kPatienceNs || mode() != Mode::kTurns || !somebody_waits_for(kPatienceNs)) {
      return false;
    }
    if (!turn_lock().try_lock()) {
      return false;  // a thread is about to change whose turn it is
    }
    end_turn_early();
    turn_lock().unlock();
    cut_short = true;
    since_ns = now;
    trace::count(trace::Counter::kTurnsCutShort);
    return true;
  }
  if (has_slot()) {
    cut_short = false;
    return false;
  }
  if (!turn_lock().try_lock()) {
    return true;
  }
  bool has = has_slot() || (is_next() && try_take_slot());  // who was rung for a slot takes longer than we do to look
  if (!has && now - since_ns > kOverdueNs) {
    take_overdue_slot();
    has = true;
  }
  if (has) {
    go_on();
  }
  turn_lock().unlock();
  return !has;
}

}  // namespace

void watch_long_turns() { pager::ask_at_storage_faults(must_wait); }

}  // namespace headroom::sched
