// A memory in which Replacement chooses what leaves, without pages or a pager: replacement_test.cc, replay_test.cc.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "pager/replacement.h"

namespace headroom::pager {

inline constexpr uint64_t kBlocks = 8192;

/// A memory of `room` blocks. Accesses to hidden blocks, and to those that are not there, are seen; no others.
class Memory {
 public:
  explicit Memory(uint64_t room) : room_(room) { EXPECT_TRUE(replacement_.open(kBlocks)); }

  /// One access; counts a load if the block is not there.
  void touch(uint64_t block) {
    if (resident_[block]) {
      if (replacement_.is_hidden(block)) {
        replacement_.used(block);
        ++faults_;
      }
      return;
    }
    if (replacement_.count() == room_) {
      while (replacement_.next_to_hide() != kNoBlock) {
      }
      const uint32_t victim = replacement_.next_victim();
      ASSERT_TRUE(resident_[victim]);
      replacement_.remove(victim);
      resident_[victim] = false;
    }
    resident_[block] = true;
    replacement_.loaded(block);
    ++loads_;
  }

  void discard(uint64_t block) {
    if (resident_[block]) {
      replacement_.remove(block);
      resident_[block] = false;
    }
    replacement_.forget(block);
  }

  void sweep(uint64_t from, uint64_t to) {
    for (uint64_t block = from; block < to; ++block) {
      touch(block);
    }
  }

  void begin_turn() { replacement_.begin_turn(); }
  [[nodiscard]] uint64_t came_back() const { return replacement_.came_back(); }
  [[nodiscard]] uint64_t left_again() const { return replacement_.left_again(); }

  uint64_t take_loads() {
    const uint64_t loads = loads_;
    loads_ = 0;
    return loads;
  }
  [[nodiscard]] uint64_t faults() const { return faults_; }

  /// The list in the order of leaving has every resident block once.
  void check() const {
    std::vector<bool> seen(kBlocks, false);
    uint64_t listed = 0;
    for (uint32_t block = replacement_.first(); block != kNoBlock; block = replacement_.after(block)) {
      ASSERT_FALSE(seen[block]);
      ASSERT_TRUE(resident_[block]);
      seen[block] = true;
      ++listed;
    }
    EXPECT_EQ(replacement_.count(), listed);
  }

 private:
  uint64_t room_;
  Replacement replacement_;
  std::vector<bool> resident_ = std::vector<bool>(kBlocks, false);
  uint64_t loads_ = 0;
  uint64_t faults_ = 0;
};

}  // namespace headroom::pager
