// The memory that this process keeps resident besides the arena; see other_memory.cc.
//
// Private to src/pager; for the pager thread alone, but where memory is counted roughly: under transition_lock, by any thread.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// Measures the memory that is resident outside the arena and reserves it.
void reserve_other_memory();
/// As reserve_other_memory(), while memory is enough; true if the node has more resident than its budget, and something that
/// could leave.
bool look_at_other_memory();
/// So much more is in use from now on, until it is measured again.
void count_more_other_memory(int64_t bytes);
/// Measures and reserves it roughly, in a few microseconds, while memory is enough; with the lock held that excludes arming.
void count_other_memory_roughly();

}  // namespace headroom::pager
