// See preemption.h. The decisions are made on the pager's thread.
#include "sched/preemption.h"

#include <atomic>

#include "base/system_calls.h"
#include "pager/pager.h"
#include "sched/idle_threads.h"
#include "sched/scheduler.h"
#include "sched/slots.h"
#include "sched/threads.h"
#include "sched/turn.h"
#include "trace/counters.h"

namespace headroom::sched {
namespace {

constexpr uint64_t kPatienceNs = kOverdueNs / 2;
constexpr uint64_t kLentNs = 100'000'000;
constexpr uint64_t kUnknownWaitNs = 100'000'000;

std::atomic<int> uncut{0};
uint64_t since_ns = 0;
uint64_t unknown_may_until_ns = 0;

/// Whether it has turned out that this rank and those who compute beside it need more than there is. The first who finds out
/// only says what it needs, so that the next one knows who is to give way.
bool is_one_too_many() {
  const int64_t needed = pager::needed_in_turn();
  if (needed > self().working_set_bytes.load(std::memory_order_relaxed)) {
    self().working_set_bytes.store(needed, std::memory_order_relaxed);
  }
  return needed > 0 && !may_stay_beside_others();
}

bool is_over(uint64_t now) {
  const uint64_t lasted = now - turn_began_at();
  return (lasted >= kPatienceNs && somebody_waits_for(kPatienceNs)) || (lasted >= kLentNs && are_too_many()) ||
         is_one_too_many();
}

/// Called with the lock of the turn held, for a thread that computes while the rank has no slot. False if it has one now.
bool must_get_in_line() {
  trace::count(trace::Counter::kTurnsBegunAtFaults);
  get_in_line();
  if (!try_take_slot()) {
    return true;
  }
  begin_turn();
  return false;
}

/// Called with the lock of the turn held: whether the program has a slot again.
bool takes_slot_again(uint64_t now) {
  if (has_slot()) {
    return true;  // another of its threads came back from MPI
  }
  if (mode() != Mode::kTurns) {
    begin_turn();  // there is room by now
    return true;
  }
  const bool overdue = is_overdue(since_ns);
  // Who was rung for a slot takes longer than we do to look; so only the next one looks.
  if (!overdue && !(is_next() && try_take_slot())) {
    return false;
  }
  if (overdue) {
    take_overdue_slot();
  }
  begin_turn();
  trace::count(trace::Counter::kSlotWaitNs, now - since_ns);
  trace::count_peak(trace::Counter::kSlotWaitNsPeak, now - since_ns);
  return true;
}

bool must_wait(int32_t thread, bool may_begin) {
  if (pager::is_turn_cut()) {
    return computes(thread);  // who is blocked in MPI may be what another rank waits for
  }
  if (!may_begin || uncut.load(std::memory_order_acquire) != 0 || mode() != Mode::kTurns) {
    return false;
  }
  const uint64_t now = base::monotonic_ns();
  const bool by_unknown = all_threads_block();
  if ((has_slot() && !by_unknown && !is_over(now)) || !computes(thread)) {
    return false;
  }
  if (by_unknown) {
    note_unknown_computes();
    pager::set_turn_watched(true);
  }
  if ((has_slot() && !is_over(now)) || (by_unknown && now < unknown_may_until_ns) || !turn_lock().try_lock()) {
    return false;
  }
  const bool had_slot = end_turn_early();
  const bool waits = had_slot || must_get_in_line();
  pager::set_turn_cut(waits);
  turn_lock().unlock();
  since_ns = now;
  trace::count(trace::Counter::kTurnsCutShort, had_slot ? 1 : 0);
  return waits;
}

/// Called with the lock of the turn held: whether the turn is cut no longer.
bool goes_on(uint64_t now) {
  if (!all_threads_block()) {
    return takes_slot_again(now);
  }
  if (!unknown_threads_compute()) {
    // What was waited for came after all; whether and when the program goes on is decided in MPI.
    auto ready = static_cast<uint32_t>(node::RunState::kReady);
    (void)self().run_state.compare_exchange_strong(ready, static_cast<uint32_t>(node::RunState::kBlocked));
    return true;
  }
  if (takes_slot_again(now)) {
    return true;
  }
  if (now - since_ns < kUnknownWaitNs) {
    return false;
  }
  unknown_may_until_ns = now + kUnknownWaitNs;
  begin_turn();
  return true;
}

void look() {
  if (!pager::is_turn_cut()) {
    if (!unknown_threads_compute()) {
      pager::set_turn_watched(false);
    } else if (all_threads_block()) {
      look_whether_rank_waits(true);
    }
    return;
  }
  const uint64_t now = base::monotonic_ns();
  if (turn_lock().try_lock()) {
    if (goes_on(now)) {
      pager::set_turn_cut(false);
    }
    turn_lock().unlock();
  } else if (now - since_ns > kOverdueNs) {  // who holds it may wait for a fault that waits here
    pager::set_turn_cut(false);
  }
}

constexpr pager::TurnRules kRules = {must_wait, look};

}  // namespace

void watch_long_turns() { pager::follow_turn_rules(kRules); }

Uncut::Uncut() { uncut.fetch_add(1, std::memory_order_acq_rel); }
Uncut::~Uncut() { uncut.fetch_sub(1, std::memory_order_acq_rel); }

}  // namespace headroom::sched
