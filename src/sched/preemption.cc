// See preemption.h. The decisions are made on the pager's thread.
#include "sched/preemption.h"

#include <atomic>

#include "base/system_calls.h"
#include "pager/pager.h"
#include "sched/scheduler.h"
#include "sched/slots.h"
#include "sched/threads.h"
#include "sched/turn.h"
#include "trace/counters.h"

namespace headroom::sched {
namespace {

constexpr uint64_t kPatienceNs = kOverdueNs / 2;
constexpr uint64_t kLentNs = 100'000'000;

std::atomic<bool> cut{false};
std::atomic<int> uncut{0};
uint64_t since_ns = 0;

/// Whether the program waits in MPI by now: whether and when it goes on is decided there.
bool program_waits() {
  return self().run_state.load(std::memory_order_acquire) == static_cast<uint32_t>(node::RunState::kBlocked) ||
         all_threads_block();
}

/// Whether it has turned out that this rank and those who compute beside it need more than there is. The first who finds out
/// only says what it needs, so that the next one knows who is to give way.
bool is_one_too_many() {
  const int64_t needed = pager::needed_in_turn();
  if (needed > self().working_set_bytes.load(std::memory_order_relaxed)) {
    self().working_set_bytes.store(needed, std::memory_order_relaxed);
  }
  return needed > 0 && !may_stay_beside_others();
}

bool may_be_cut(uint64_t now) {
  if (uncut.load(std::memory_order_acquire) != 0 || mode() != Mode::kTurns) {
    return false;
  }
  if (!has_slot()) {
    return !program_waits();
  }
  const uint64_t lasted = now - turn_began_at();
  return (lasted >= kPatienceNs && somebody_waits_for(kPatienceNs)) || (lasted >= kLentNs && are_too_many()) ||
         is_one_too_many();
}

/// Called with the lock of the turn held, by a rank that computes without a slot. False if it has one now, or waits in MPI.
bool must_get_in_line() {
  if (has_slot() || program_waits()) {
    return false;
  }
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

/// What the pager asks. `may_begin`: at a fault on storage whose content is not under way.
bool must_wait(bool may_begin) {
  const uint64_t now = base::monotonic_ns();
  if (!cut.load(std::memory_order_relaxed)) {
    if (!may_begin || !may_be_cut(now) || !turn_lock().try_lock()) {
      return false;
    }
    const bool had_slot = has_slot();
    const bool waits = had_slot ? end_turn_early() : must_get_in_line();
    cut.store(waits, std::memory_order_release);
    turn_lock().unlock();
    since_ns = now;
    trace::count(trace::Counter::kTurnsCutShort, had_slot && waits ? 1 : 0);
    return waits;
  }
  if (program_waits()) {
    auto ready = static_cast<uint32_t>(node::RunState::kReady);  // it began to wait just before that was said
    (void)self().run_state.compare_exchange_strong(ready, static_cast<uint32_t>(node::RunState::kBlocked));
    cut.store(false, std::memory_order_release);
    return false;
  }
  if (!turn_lock().try_lock()) {
    return now - since_ns <= kOverdueNs;  // who holds it may wait for this very fault
  }
  const bool goes_on = takes_slot_again(now);
  cut.store(!goes_on, std::memory_order_release);
  turn_lock().unlock();
  return !goes_on;
}

}  // namespace

void watch_long_turns() { pager::ask_at_storage_faults(must_wait); }

bool is_turn_cut() { return cut.load(std::memory_order_acquire); }

Uncut::Uncut() { uncut.fetch_add(1, std::memory_order_acq_rel); }
Uncut::~Uncut() { uncut.fetch_sub(1, std::memory_order_acq_rel); }

}  // namespace headroom::sched
