// Checks of what pager.h says is always so; see invariants.cc.
//
// Private to src/pager; for the pager thread alone.
#pragma once

namespace headroom::pager {

/// True if P1, P3 and P4 hold for every block, and the list is whole; else it says what is wrong. (P2 is a holder's affair.)
bool check_invariants();
/// In builds for debugging: some of them each 64th round of the pager's thread, and the process ends where one is broken.
void check_now_and_then();

}  // namespace headroom::pager
