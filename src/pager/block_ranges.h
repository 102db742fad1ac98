// From addresses to blocks. Memory outside the partition is passed over, and memory that lies in several views (the arena,
// moved static data) comes in as many parts.
#pragma once

#include <algorithm>
#include <cstdint>

#include "arena/arena.h"
#include "pager/pager.h"

namespace headroom::pager {

struct BlockRange {
  uint64_t first;
  uint64_t count;
};

/// The blocks of the part of [address, address + bytes) that lies in one view; `used` is how many bytes that part has.
inline BlockRange blocks_of(uintptr_t address, uint64_t bytes, uint64_t& used) {
  uint64_t offset = 0;
  if (!arena::find_offset(partition(), address, offset)) {
    used = arena::kPageBytes - address % arena::kPageBytes;
    used = std::min(used, bytes);
    return {0, 0};
  }
  uint64_t run = (offset + bytes - 1) / arena::kBlockBytes - offset / arena::kBlockBytes + 1;
  const arena::View view = arena::view_of_run(partition(), offset / arena::kBlockBytes, run);
  const uint64_t inside = view.address + view.bytes - address;
  used = std::min(inside, bytes);
  return {offset / arena::kBlockBytes, (offset + used - 1) / arena::kBlockBytes - offset / arena::kBlockBytes + 1};
}

/// Calls `action(range, address, bytes)` for each part of [address, address + bytes) that lies in evictable memory.
template <typename Action>
void for_each_range(const void* address, uint64_t bytes, Action action) {
  auto at = reinterpret_cast<uintptr_t>(address);
  const uintptr_t end = at + bytes;
  while (at < end) {
    uint64_t used = 0;
    const BlockRange range = blocks_of(at, end - at, used);
    if (range.count > 0) {
      action(range, at, used);
    }
    at += used;
  }
}

}  // namespace headroom::pager
