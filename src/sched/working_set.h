// How much memory this rank will need in its next turn if others compute beside it, learnt from its turns before.
//
// The memory that is resident when a turn ends is not the memory that the turn needed: a rank that goes over much memory once
// fills all that there is, and does as well with less. So after a turn in which hardly anything came back that had left in the
// same turn, half of the resident memory is expected to do, and another rank may compute at the same time. If then much does
// come back, ranks drive each other's memory out: all that was used more than once is needed, and the rank computes when so
// much is free. Company is tried again after 2, 4 ... 64 turns. (Denning's working set, 1968, with the turn as its window.)
//
// Private to src/sched. Not thread-safe.
#pragma once

#include <cstdint>

namespace headroom::sched {

class WorkingSet {
 public:
  /// A turn has ended with `resident` bytes of blocks in memory; `came_back` bytes were read in it that had left in it, and
  /// `left_again` of these are not in memory.
  void turn_ended(int64_t resident, int64_t came_back, int64_t left_again);
  /// Whether less than all was tried not long ago, and did not do.
  [[nodiscard]] bool needs_all() const { return turns_to_wait_ > 0; }
  /// The bytes that the next turn is expected to need.
  [[nodiscard]] int64_t expected() const { return expected_; }

 private:
  int64_t expected_ = 0;
  uint32_t failed_ = 0;         // how often less than was used did not do
  uint32_t turns_to_wait_ = 0;  // before less is tried again
};

}  // namespace headroom::sched
