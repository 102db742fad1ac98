// The figures of a node as its report has them: sums over the processes that took part.
#pragma once

#include <algorithm>
#include <cstdint>

#include "node/session.h"
#include "trace/counters.h"

namespace headroom::preload {

using node::Member;
using node::MemberState;
using trace::Counter;

inline bool took_part(const Member& member) {
  const MemberState state = node::state_of(member);
  return state != MemberState::kEmpty && state != MemberState::kJoining;
}

inline uint64_t counter(const Member& member, Counter which) {
  return member.counters[static_cast<int>(which)].load(std::memory_order_relaxed);
}

/// The sum of all processes' (of those that say how much memory a process had at most: of what each had at its own time); or
/// the most of any, where only that means something.
inline uint64_t total(const node::Ledger& ledger, Counter which) {
  const bool is_most =
      which == Counter::kSlotWaitNsPeak || which == Counter::kMessagesUnexpectedPeak || which == Counter::kIoWindowBytesPeak;
  uint64_t all = 0;
  for (const Member& member : ledger.used_members()) {
    if (took_part(member)) {
      const uint64_t one = counter(member, which);
      all = !is_most ? all + one : std::max(one, all);
    }
  }
  return all;
}

/// Whether something had to leave memory.
inline bool was_short(const node::Ledger& ledger) { return ledger.lacked_room_ns.load(std::memory_order_relaxed) != 0; }

/// Whether memory was watched, since an allocation did not fit.
inline bool was_watched(const node::Ledger& ledger) { return ledger.short_memory.load(std::memory_order_relaxed) != 0; }

/// Whether a process was warned that its memory exceeds the budget, and cannot move.
inline bool has_exceeded_unmoved(const node::Ledger& ledger) {
  return ledger.told_of_other_memory.load(std::memory_order_relaxed) != 0;
}

inline double mebibytes(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

/// Whether the first process that ended by an error of Headroom's, or by MPI_Abort, is writing this.
inline bool has_failed(const node::Ledger& ledger) { return ledger.reporter.load(std::memory_order_relaxed) != 0; }

}  // namespace headroom::preload
