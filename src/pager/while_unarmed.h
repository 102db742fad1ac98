// What a thread of the program does with memory that it holds as long as memory is enough, and how it meets a process that
// begins to arm (transition_lock.h).
//
// Private to src/pager.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// If memory is not watched yet: makes the pages present where the kernel would fail on missing ones, and returns true. Called
/// by the program's threads; excludes arming meanwhile.
bool populate_while_unarmed(uintptr_t address, uint64_t bytes);
/// Whether blocks that were not there when they were held (by a seq_cst operation, before) have to be asked for: this process
/// is armed, or has begun to arm; the thread then waits for the end of that. No system call while memory is enough. Called by
/// the program's threads.
bool is_armed_once_settled();
/// Adds `bit` and a write hold to the block's word, unless the bit is there (false); `before` is the word as it was. Excludes
/// arming meanwhile.
bool mark_kept(uint64_t block, uint64_t bit, uint64_t& before);

}  // namespace headroom::pager
