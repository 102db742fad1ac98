// See slots.h. Slots are counted in the ledger; a rank that waits sleeps on its own bell there and is rung by the rank that
// ends a turn.
#include "sched/slots.h"

#include <algorithm>

#include "base/system_calls.h"
#include "sched/scheduler.h"
#include "trace/counters.h"
#include "trace/recorder.h"

namespace headroom::sched {
namespace {

using node::Member;
using node::RunState;
using trace::Counter;

constexpr uint64_t kOldFirstNs = 1'000'000'000;
constexpr uint64_t kOldWhateverNs = kOverdueNs / 2;
constexpr int64_t kBellTimeoutNs = 10'000'000;
constexpr int64_t kLongestBellTimeoutNs = 80'000'000;  // less than SeenWait counts at a time
/// A waiting rank looks each time the bell's timeout passes, on a busy machine later.
constexpr uint64_t kLooksWithinNs = 2'000'000'000;
constexpr uint64_t kJumpsAboutNs = 10'000'000;

bool overdue = false;  // the slot that this process has was given to it regardless; under the lock of the turn

void note_most(std::atomic<uint32_t>& most, uint32_t held) {
  uint32_t known = most.load(std::memory_order_relaxed);
  while (held > known && !most.compare_exchange_weak(known, held, std::memory_order_relaxed)) {
  }
}

/// The memory that the ranks that compute leave to others: counted once for as many candidates as there may be, of hundreds of
/// members.
class Room {
 public:
  Room() : bytes_(ledger().budget) {
    for (const Member& member : ledger().used_members()) {
      if (is_alive(member)) {
        bytes_ -= bytes_besides_blocks(member);
        in_use_ += used_by(member);
      }
    }
  }
  /// Whether the memory that `candidate` is expected to use fits beside that of the ranks that compute. One that would not fit
  /// alone either loses nothing by company. (Ranks that drive each other's memory out while both compute read it again and
  /// again.)
  [[nodiscard]] bool fits(const Member& candidate) const {
    const int64_t in_use = in_use_ - (is_alive(candidate) ? used_by(candidate) : 0);
    const int64_t wanted = candidate.turns.working_set_bytes.load(std::memory_order_relaxed);
    return in_use <= 0 || wanted > bytes_ || in_use + wanted <= bytes_;
  }

 private:
  static int64_t used_by(const Member& member) {
    return member.turns.slots.load(std::memory_order_relaxed) != 0
               ? member.turns.working_set_bytes.load(std::memory_order_relaxed)
               : 0;
  }
  int64_t bytes_;
  int64_t in_use_ = 0;
};

/// The number of slots of ranks that wait for single pages most of the time: the core is free for another rank meanwhile, and
/// the more of them there are, the better the disk is used. (But not of ranks that would not wait if they had more memory.)
uint32_t lent_slots() {
  if (ledger().asked_slots != 0) {
    return 0;
  }
  const uint64_t now = base::monotonic_ns();
  uint32_t lent = 0;
  for (const Member& member : ledger().used_members()) {
    const uint64_t at = member.turns.read_page_at_ns.load(std::memory_order_relaxed);
    if (is_alive(member) && member.turns.wants_all.load(std::memory_order_relaxed) == 0 && at != 0 &&
        (at > now || now - at < kJumpsAboutNs)) {
      lent += member.turns.slots.load(std::memory_order_relaxed);
    }
  }
  return lent;
}

/// Could go on, has no slot, and has looked for one lately: a rank that does not is stopped (by a debugger, say), and nothing
/// is kept for it. Its place in the line stays: when it looks again it has waited longest.
bool is_ready(const Member& member, uint64_t now) {
  return is_alive(member) && member.turns.slots.load(std::memory_order_relaxed) == 0 &&
         member.turns.run_state.load(std::memory_order_acquire) == static_cast<uint32_t>(RunState::kReady) &&
         member.turns.looked_at_ns.load(std::memory_order_relaxed) + kLooksWithinNs > now;
}

/// Whether slots are kept free for a rank that has waited long, and longer than this one; and longer still if it would not fit
/// beside the ranks that compute.
bool is_kept_for_another() {
  const uint64_t now = base::monotonic_ns();
  const uint64_t own = self().turns.ready_since_ns.load(std::memory_order_relaxed);
  const Room room;
  for (const Member& member : ledger().used_members()) {
    const uint64_t since = member.turns.ready_since_ns.load(std::memory_order_relaxed);
    if (&member == &self() || !is_ready(member, now) || since >= own || now < since + kOldFirstNs) {
      continue;
    }
    if (now - since > kOldWhateverNs || room.fits(member)) {
      return true;
    }
  }
  return false;
}

/// How long a waiting rank sleeps if it is not rung; it looks by itself for changes that only time brings. All that wait look,
/// together, about as often as a few would.
int64_t bell_timeout_ns() {
  constexpr int64_t kFew = 8;
  const uint64_t now = base::monotonic_ns();
  int64_t waiting = 0;
  for (const Member& member : ledger().used_members()) {
    waiting += is_ready(member, now) ? 1 : 0;
  }
  const int64_t times = waiting / ledger().cores() / kFew;
  return std::min(kBellTimeoutNs * std::max<int64_t>(times, 1), kLongestBellTimeoutNs);
}

uint32_t wanted_by(const Member& member) {
  const uint32_t wanted = member.turns.slots_wanted.load(std::memory_order_relaxed);
  const uint32_t most = ledger().slots();
  return wanted == 0 ? 1 : std::min(wanted, most);
}

/// The rank that should have the free slots: of those that fit the one with most of its memory here, unless one has waited
/// long. `free`: how many slots there are; no rank that wants more is chosen, but for those that have waited long.
Member* next_ready(uint32_t free) {
  Member* chosen = nullptr;
  uint64_t oldest = UINT64_MAX;
  int64_t most = -1;
  const uint64_t now = base::monotonic_ns();
  const Room room;
  for (Member& member : ledger().used_members()) {
    if (!is_ready(member, now) || !room.fits(member)) {
      continue;
    }
    const uint64_t since = member.turns.ready_since_ns.load(std::memory_order_relaxed);
    const int64_t resident = member.memory.reserved_bytes.load(std::memory_order_relaxed);
    const bool old = now > since && now - since > kOldFirstNs;
    if (old ? since < oldest : (oldest == UINT64_MAX && resident > most && wanted_by(member) <= free)) {
      chosen = &member;
      oldest = old ? since : oldest;
      most = resident;
    }
  }
  return chosen;
}

/// Rings the rank that should have the free slots.
void ring_next() {
  const uint32_t held = ledger().held_slots.load(std::memory_order_relaxed);
  const uint32_t slots = ledger().slots();
  if (Member* member = next_ready(held < slots ? slots - held : 1); member != nullptr && member != &self()) {
    member->turns.slot_bell.fetch_add(1, std::memory_order_release);
    base::futex_wake(&member->turns.slot_bell, 1, true);
  }
}

void record(RunState state) {
  if (trace::is_recording()) {
    trace::record({base::monotonic_ns(), trace::EventKind::kRunState, static_cast<uint16_t>(state), 0, {}});
  }
}

}  // namespace

bool try_take_slot() {
  const uint32_t lent = lent_slots();
  const uint32_t slots = ledger().slots() + lent;
  const uint32_t wanted = wanted_by(self());
  if (is_kept_for_another()) {
    return false;
  }
  uint32_t held = ledger().held_slots.load(std::memory_order_relaxed);
  if (held > 0 && held < slots && !Room().fits(self())) {
    trace::count(Counter::kTurnsPutOff);
    return false;
  }
  while (held + wanted <= slots) {
    // acq_rel: pairs with release_slot() of the member whose turn ended.
    if (ledger().held_slots.compare_exchange_weak(held, held + wanted, std::memory_order_acq_rel)) {
      note_most(ledger().most_held_with_lent, held + wanted);
      if (held + wanted <= ledger().slots()) {
        note_most(ledger().most_held_slots, held + wanted);
      } else {
        trace::count(Counter::kTurnsLent);
      }
      trace::count(Counter::kTurnsOfSeveralSlots, wanted > 1 ? 1 : 0);
      overdue = false;
      self().turns.slots.store(wanted, std::memory_order_release);
      return true;
    }
  }
  return false;
}

bool try_take_overdue_slot(const SeenWait& wait) {
  std::atomic<uint64_t>& freed_at = ledger().slot_freed_ns;
  uint64_t freed = freed_at.load(std::memory_order_relaxed);
  // One at a time: of several ranks that have waited so long the others wait for this one's end, or as long again.
  if (wait.seen_ns() <= kOverdueNs || wait.looked_ns() <= freed + kOverdueNs ||
      !freed_at.compare_exchange_strong(freed, wait.looked_ns(), std::memory_order_relaxed)) {
    return false;
  }
  const uint32_t wanted = wanted_by(self());
  const uint32_t held = ledger().held_slots.fetch_add(wanted, std::memory_order_acq_rel) + wanted;
  note_most(ledger().most_held_slots, held);
  note_most(ledger().most_held_with_lent, held);
  overdue = true;
  self().turns.slots.store(wanted, std::memory_order_release);
  trace::count(Counter::kTurnsOverdue);
  return true;
}

void become_ready() {
  const uint64_t now = base::monotonic_ns();
  self().turns.ready_since_ns.store(now, std::memory_order_relaxed);
  self().turns.looked_at_ns.store(now, std::memory_order_relaxed);
  set_run_state(RunState::kReady);
}

void SeenWait::look() {
  const uint64_t now = base::monotonic_ns();
  seen_ns_ += std::min(now - looked_ns_, kMostBetweenLooksNs);
  looked_ns_ = now;
  self().turns.looked_at_ns.store(now, std::memory_order_relaxed);
}

void set_run_state(RunState state) {
  self().turns.run_state.store(static_cast<uint32_t>(state), std::memory_order_release);
  record(state);
}

bool release_slot() {
  const uint32_t held = self().turns.slots.exchange(0, std::memory_order_acq_rel);
  if (held == 0) {
    return false;
  }
  record(RunState::kBlocked);  // before the next one has its turn; the others are told if it lasts
  const uint32_t left = ledger().held_slots.fetch_sub(held, std::memory_order_acq_rel) - held;
  if (left < ledger().slots()) {
    ledger().slot_freed_ns.store(base::monotonic_ns(), std::memory_order_relaxed);
  } else if (overdue) {
    ledger().slot_freed_ns.store(0, std::memory_order_relaxed);  // the next one has waited as long: it follows at once
  }
  ring_next();
  return true;
}

void wait_for_slot() {
  SeenWait wait;
  wait.begin();
  const uint64_t started = wait.looked_ns();
  become_ready();
  for (;;) {
    // The bell is read before the slots are looked at: a ring in between makes the futex return at once.
    const uint32_t bell = self().turns.slot_bell.load(std::memory_order_acquire);
    if (mode() != Mode::kTurns) {
      return;  // there is room by now, and a slot would be kept by a rank that need not give it up
    }
    wait.look();
    if (try_take_slot() || try_take_overdue_slot(wait)) {
      break;
    }
    base::futex_wait(&self().turns.slot_bell, bell, bell_timeout_ns(), true);
  }
  const uint64_t waited = base::monotonic_ns() - started;
  trace::count(Counter::kSlotWaitNs, waited);
  trace::count_peak(Counter::kSlotWaitNsPeak, waited);
  if (ledger().held_slots.load(std::memory_order_relaxed) < ledger().slots()) {
    ring_next();  // there may be some left
  }
}

bool are_too_many() {
  const uint32_t held = ledger().held_slots.load(std::memory_order_relaxed);
  return held > ledger().slots() && held > ledger().slots() + lent_slots();
}

bool may_stay_beside_others() { return overdue || Room().fits(self()); }

bool is_next() { return next_ready(UINT32_MAX) == &self(); }

bool somebody_has_slot() { return ledger().held_slots.load(std::memory_order_relaxed) != 0; }

bool somebody_is_ready() { return next_ready(UINT32_MAX) != nullptr; }

bool somebody_waits_for(uint64_t ns) {
  const uint64_t now = base::monotonic_ns();
  for (const Member& member : ledger().used_members()) {
    if (is_ready(member, now) && member.turns.ready_since_ns.load(std::memory_order_relaxed) + ns < now) {
      return true;
    }
  }
  return false;
}

}  // namespace headroom::sched
