// Memory for windows and messages of a collective call: anonymous, counted in the budget when it is taken, never evictable.
//
// It lies in a nameless file in memory, as everything of Headroom's that is counted by hand (pager/other_memory.cc). One short
// piece is kept for the next call. Thread-safe.
#pragma once

#include <cstdint>

namespace headroom::collio {

/// Zeroed or used before; nullptr if there is none.
char* take_window_memory(int64_t bytes);
void give_back_window_memory(char* memory, int64_t bytes);

/// How much more may be used for windows on this node now: what the kernel has left, and what the budget lets pages give up.
int64_t room_for_windows();

}  // namespace headroom::collio
