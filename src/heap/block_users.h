// Who uses a block: extents that share a block at their ends are counted, so that the first one claims the block's budget, and
// the last one's end gives up its content. Not thread-safe; never evictable.
#pragma once

#include <cstdint>

#include "arena/arena.h"

namespace headroom::heap {

inline constexpr uint64_t kBlockPages = arena::kBlockBytes / arena::kPageBytes;

struct FreshBlocks {
  uint64_t count = 0;  // blocks that had no user
  bool first = false;
  bool last = false;
};

class BlockUsers {
 public:
  /// For a partition of so many pages; false if there is no memory for it.
  bool open(uint64_t pages);

  /// One more user of each block of these pages.
  FreshBlocks add(uint64_t first, uint64_t pages);
  /// One less; blocks without users are discarded and their claim is given back.
  void remove(uint64_t first, uint64_t pages);

  /// A border at `page` makes two extents share the block that it lies in, if it lies in one; without it they are one extent.
  void divide(uint64_t page) {
    if (page % kBlockPages != 0) {
      ++users_[page / kBlockPages];
    }
  }
  void join(uint64_t page) {
    if (page % kBlockPages != 0) {
      --users_[page / kBlockPages];
    }
  }

 private:
  uint16_t* users_ = nullptr;
};

}  // namespace headroom::heap
