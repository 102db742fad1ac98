// Giving memory back; see eviction.cc.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

#include "pager/room.h"

namespace headroom::pager {

/// Evicts up to `bytes` of this process's memory; returns how much is gone or on its way out. If that is nothing, since storage
/// is full, and a thread waits for it, the run pauses until there is room there.
int64_t evict(int64_t bytes, Urgency urgency);
/// Begins to evict these blocks, which the program will not need.
void evict_unneeded(uint64_t first, uint64_t count);
void write_done(uint64_t first, uint64_t count);
/// They could not be written, since storage is full: they stay.
void write_lacked_room(uint64_t first, uint64_t count);

}  // namespace headroom::pager
