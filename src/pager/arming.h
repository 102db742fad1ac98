// The change from "memory is enough" to "memory is short" in this process; see arming.cc.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// `claimed_bytes`: the bytes that are reserved for allocations. From then on the resident bytes are reserved instead.
void arm(int64_t claimed_bytes);
void cover_new_memory();
/// Watches static region `index` and lists its populated blocks.
void cover_static_region(int index);

}  // namespace headroom::pager
