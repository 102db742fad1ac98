// See preemption.h. The decisions are made on the pager's thread.
#include "sched/preemption.h"

#include <atomic>

#include "base/system_calls.h"
#include "pager/pager.h"
#include "sched/idle_threads.h"
#include "sched/scheduler.h"
#include "sched/slots.h"
#include "sched/threads.h"
#include "sched/traced_waits.h"
#include "sched/turn.h"
#include "trace/counters.h"

namespace headroom::sched {
namespace {

constexpr uint64_t kPatienceNs = kOverdueNs / 2;
constexpr uint64_t kLentNs = 100'000'000;
constexpr uint64_t kUnknownWaitNs = 100'000'000;

std::atomic<int> uncut{0};
uint64_t since_ns = 0;          // waits for its slot
SeenWait seen_wait;             // the same, as far as it was seen
uint64_t cut_at_ns = 0;         // the turn
uint64_t unknown_since_ns = 0;  // unknown threads have been in line, if now and then; 0: they are not
uint64_t unknown_may_until_ns = 0;

/// Whether it has turned out that this rank and those that compute beside it need more than there is. The first rank that finds
/// out only says how much it needs, so that the next one knows which is to give way.
bool note_need() {
  const int64_t needed = pager::needed_in_turn();
  if (needed > self().turns.working_set_bytes.load(std::memory_order_relaxed)) {
    self().turns.working_set_bytes.store(needed, std::memory_order_relaxed);
  }
  return needed > 0 && !may_stay_beside_others();
}

bool look_whether_over(uint64_t now) {
  const uint64_t lasted = now - turn_began_at();
  return (lasted >= kPatienceNs && somebody_waits_for(kPatienceNs)) || (lasted >= kLentNs && are_too_many()) || note_need();
}

/// Called with the lock of the turn held, for a thread that computes while the rank has no slot. False if it has one now. An
/// unknown thread that has given up waiting before keeps its place; and its need is not the one that a turn has shown.
bool must_get_in_line(bool by_unknown, uint64_t now) {
  trace::count(trace::Counter::kTurnsBegunAtFaults);
  get_in_line(!by_unknown);
  unknown_since_ns = !by_unknown ? 0 : unknown_since_ns == 0 ? now : unknown_since_ns;
  if (unknown_since_ns != 0 && unknown_since_ns != now) {
    seen_wait.go_on();
  } else {
    seen_wait.begin();
  }
  if (by_unknown) {
    self().turns.ready_since_ns.store(unknown_since_ns, std::memory_order_relaxed);
  }
  if (!try_take_slot()) {
    since_ns = by_unknown ? unknown_since_ns : now;
    return true;
  }
  unknown_since_ns = 0;
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
  seen_wait.look();
  // A rank that was rung for a slot takes longer than this one to look; so only the next one looks.
  if (!(is_next() && try_take_slot()) && !try_take_overdue_slot(seen_wait)) {
    return false;
  }
  begin_turn();
  trace::count(trace::Counter::kSlotWaitNs, now - since_ns);
  trace::count_peak(trace::Counter::kSlotWaitNsPeak, now - since_ns);
  return true;
}

/// A fault of a thread that computes while all known ones are blocked: renews what is known of such threads.
bool note_if_unknown(int32_t thread) {
  if (!all_threads_block() || !computes(thread)) {
    return false;
  }
  note_unknown_computes();
  pager::set_turn_watched(true);
  return true;
}

bool must_wait(int32_t thread, bool may_begin) {
  if (mode() != Mode::kTurns && !pager::is_turn_cut()) {
    return false;
  }
  const bool by_unknown = note_if_unknown(thread);
  if (pager::is_turn_cut()) {
    return by_unknown || computes(thread);  // another rank may wait for one that is blocked in MPI
  }
  const uint64_t now = base::monotonic_ns();
  if (!may_begin || uncut.load(std::memory_order_acquire) != 0 || (has_slot() && !look_whether_over(now)) ||
      (by_unknown && now < unknown_may_until_ns) || !(by_unknown || computes(thread)) || !turn_lock().try_lock()) {
    return false;
  }
  const bool had_slot = end_turn_early();
  if (had_slot) {
    seen_wait.begin();
  }
  since_ns = now;
  cut_at_ns = now;
  const bool waits = had_slot || must_get_in_line(by_unknown, now);
  pager::set_turn_cut(waits);
  turn_lock().unlock();
  trace::count(trace::Counter::kTurnsCutShort, had_slot ? 1 : 0);
  return waits;
}

/// Called with the lock of the turn held: whether the turn is cut no longer.
bool goes_on(uint64_t now) {
  const bool all_block = all_threads_block();
  if (all_block && !unknown_threads_compute()) {
    // The data that the program waited for came after all; MPI decides whether and when the program goes on.
    auto ready = static_cast<uint32_t>(node::RunState::kReady);
    (void)self().turns.run_state.compare_exchange_strong(ready, static_cast<uint32_t>(node::RunState::kBlocked));
    return true;
  }
  if (takes_slot_again(now)) {
    unknown_since_ns = 0;
    return true;
  }
  if (!all_block || now - cut_at_ns < kUnknownWaitNs) {
    return false;
  }
  unknown_may_until_ns = now + kUnknownWaitNs;
  begin_turn();
  return true;
}

/// Threads that nobody looks at by polling, because they never call MPI or the one that does is in a call that nobody sees
/// into.
void look_at_others() {
  const bool some_compute = unknown_threads_compute();
  if (some_compute && !all_threads_block()) {
    return;
  }
  unknown_since_ns = some_compute ? unknown_since_ns : 0;
  if (look_whether_rank_waits(true) && !some_compute && !(has_slot() && some_thread_blocks())) {
    pager::set_turn_watched(false);
    if (has_slot() && some_thread_blocks()) {  // one has begun to since, and may have found the turn watched still
      pager::set_turn_watched(true);
    }
  }
}

void look() {
  if (!pager::is_turn_cut()) {
    look_at_others();
    return;
  }
  const uint64_t now = base::monotonic_ns();
  if (turn_lock().try_lock()) {
    if (goes_on(now)) {
      pager::set_turn_cut(false);
    }
    turn_lock().unlock();
  } else if (now - since_ns > kOverdueNs) {  // its holder may wait for a fault that waits here
    pager::set_turn_cut(false);
  }
}

constexpr pager::TurnRules kRules = {must_wait, look, look_at_traced_waits};

}  // namespace

void watch_long_turns() { pager::follow_turn_rules(kRules); }

Uncut::Uncut() { uncut.fetch_add(1, std::memory_order_acq_rel); }
Uncut::~Uncut() { uncut.fetch_sub(1, std::memory_order_acq_rel); }

}  // namespace headroom::sched
