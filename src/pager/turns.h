// The pager's part in turns; see turns.cc.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// Keeps the number of blocks that come back in a turn.
void follow_turns();
/// Whether that thread's fault on storage has to wait, since it is not this process's turn; `may_begin`: it may from now on.
bool must_wait_for_turn(int32_t thread, bool may_begin);
/// Has the rules look before a sample of the trace is taken.
void look_before_sample();
/// If such faults wait, or else the turn is watched: has the rules followed.
void look_at_turn();

}  // namespace headroom::pager
