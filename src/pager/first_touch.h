// Allocations that are filled in order while memory is enough; see first_touch.cc. All functions but watches_first_touch()
// are called with transition_lock held.
//
// Private to src/pager.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// Whether there is something to look at. Any time.
bool watches_first_touch();
/// Looks at the allocations whose time has come; returns in how many ms the next look is due, or -1.
int look_at_first_touch();
void watch_first_touch(uint64_t offset, uint64_t bytes);
/// Allocations that overlap are watched no longer. `given_up`: the content is about to end.
void forget_first_touch(uint64_t offset, uint64_t bytes, bool given_up);
/// Memory becomes short: nothing is looked at any more.
void end_first_touch();

}  // namespace headroom::pager
