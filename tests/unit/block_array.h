// An array in evictable memory that begins with a block, for tests that look at the states of its blocks.
#pragma once

#include <gtest/gtest.h>

#include "heap/heap.h"
#include "pager/state.h"

namespace headroom::test {

class BlockArray {
 public:
  explicit BlockArray(uint64_t blocks)
      : memory_(static_cast<char*>(heap::allocate((blocks + 1) * arena::kBlockBytes, 1, false))) {
    uint64_t offset = 0;
    EXPECT_TRUE(arena::find_offset(pager::partition(), reinterpret_cast<uintptr_t>(memory_), offset));
    first_ = arena::block_of(offset + arena::kBlockBytes - 1);
    memory_ += first_ * arena::kBlockBytes - offset;
  }
  [[nodiscard]] volatile uint64_t* block(uint64_t number) const {
    return reinterpret_cast<volatile uint64_t*>(memory_ + number * arena::kBlockBytes);
  }
  [[nodiscard]] uint64_t index_of(uint64_t number) const { return first_ + number; }
  [[nodiscard]] uint64_t state_of(uint64_t number) const {
    return arena::state_of(pager::partition().blocks[index_of(number)].load());
  }

 private:
  char* memory_;
  uint64_t first_ = 0;
};

}  // namespace headroom::test
