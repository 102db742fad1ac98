// Slots: the right to compute while memory is short. There are as many as cores, or as asked for; a rank is admitted when one
// is free and the memory that the rank is expected to use fits beside that of the ranks that compute. A rank whose threads kept
// several cores busy in its last turn takes as many slots, all at once or none (OpenMP, MPI_THREAD_MULTIPLE).
//
// Private to src/sched.
#pragma once

#include <cstdint>

#include "base/system_calls.h"
#include "node/ledger.h"
#include "pager/pager.h"

namespace headroom::sched {

/// A rank that has waited this long with no slot released is admitted anyway.
inline constexpr uint64_t kOverdueNs = 5'000'000'000;

/// How long this process has been seen waiting in line: the time between two looks counts up to a bound, so a job that was
/// suspended as a whole has not waited meanwhile. Under the lock of the turn.
class SeenWait {
 public:
  void begin() {
    seen_ns_ = 0;
    go_on();
  }
  /// Is in line again, and has been before.
  void go_on() { looked_ns_ = base::monotonic_ns(); }
  /// Looks whether it may have a slot, and tells the others that it does.
  void look();
  [[nodiscard]] uint64_t seen_ns() const { return seen_ns_; }
  [[nodiscard]] uint64_t looked_ns() const { return looked_ns_; }

 private:
  static constexpr uint64_t kMostBetweenLooksNs = 100'000'000;
  uint64_t seen_ns_ = 0;
  uint64_t looked_ns_ = 0;
};

inline node::Ledger& ledger() { return *pager::session().ledger; }
inline node::Member& self() { return *pager::session().self; }

inline bool has_slot() { return self().turns.slots.load(std::memory_order_relaxed) != 0; }

/// Says what this rank does now, to the others and in the trace.
void set_run_state(node::RunState state);

/// Waits until this process has its slots; one that has waited too long takes one more than there are.
void wait_for_slot();
/// Takes this process's slots if it may have them now. (The lock of the turn, in scheduler.cc, keeps its threads from taking
/// two.)
bool try_take_slot();
/// Takes its slots although they are not free, if it has waited for too long (counted as overdue): the ranks that have them do
/// not give them up. (If they do, its turn comes, since the rank that has waited longest is first.)
bool try_take_overdue_slot(const SeenWait& wait);
/// Whether more slots are held than there are now: some were lent, and a rank that lent its own wants it back.
bool are_too_many();
/// Whether the memory that this process is expected to use fits beside that of the ranks that compute, or it has waited too
/// long to care.
bool may_stay_beside_others();
/// Whether the next free slots are this process's.
bool is_next();
/// Says that this process could go on and waits for a slot.
void become_ready();
/// Whether some rank has been ready for as long, and could have a slot if this one gave its own up.
bool somebody_waits_for(uint64_t ns);
/// Gives its slots up, if there are any (else false), and rings the rank that should have them next.
bool release_slot();
/// Whether some rank computes.
bool somebody_has_slot();
/// Whether some rank waits for a slot and could have it.
bool somebody_is_ready();

}  // namespace headroom::sched
