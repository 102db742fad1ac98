// Which blocks stay: programs of accesses against a memory of kRoom blocks, where only faults are seen, as in the pager.
#include "pager/replacement.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "replaced_memory.h"

namespace headroom::pager {
namespace {

constexpr uint64_t kRoom = 512;

TEST(Replacement, KeepsWhatFitsOfACyclicSweep) {
  for (const uint64_t blocks : {kRoom + 100, 2 * kRoom, 4 * kRoom}) {
    Memory memory(kRoom);
    memory.sweep(0, blocks);
    EXPECT_EQ(blocks, memory.take_loads());
    for (int pass = 0; pass < 6; ++pass) {
      memory.sweep(0, blocks);
      EXPECT_LE(memory.take_loads(), blocks - kRoom + kRoom / 14) << blocks;
      memory.check();
    }
    EXPECT_LE(memory.faults(), 6 * kRoom / 4);  // what it costs to know
  }
}

TEST(Replacement, KeepsSomeOfEveryPartOfASweep) {
  Memory memory(kRoom);
  const uint64_t blocks = 2 * kRoom;
  memory.sweep(0, blocks);
  (void)memory.take_loads();
  for (int pass = 0; pass < 4; ++pass) {
    for (uint64_t part = 0; part < blocks; part += 256) {
      memory.sweep(part, part + 256);
      const uint64_t loads = memory.take_loads();
      EXPECT_GE(loads, 48) << pass << ", " << part;
      EXPECT_LE(loads, 224) << pass << ", " << part;
    }
  }
}

TEST(Replacement, CountsWhatATurnCouldNotKeep) {
  Memory memory(kRoom);
  for (int turn = 0; turn < 4; ++turn) {  // once each turn: what comes back was used in turns before
    memory.begin_turn();
    memory.sweep(0, 2 * kRoom);
    EXPECT_EQ(0, memory.came_back());
  }
  memory.sweep(0, 2 * kRoom);
  EXPECT_EQ(0, memory.came_back());
  memory.sweep(0, 2 * kRoom);
  EXPECT_GE(memory.came_back(), kRoom / 2);
  memory.sweep(0, 2 * kRoom);  // what is here now, and what has left again, is all of it
  EXPECT_GE(memory.left_again() + kRoom, 2 * kRoom - kRoom / 8);
  EXPECT_LE(memory.left_again(), kRoom);
  memory.begin_turn();
  EXPECT_EQ(0, memory.came_back());
}

TEST(Replacement, WhatComesBackByPagesHasNotLeftTwice) {
  Replacement memory;
  ASSERT_TRUE(memory.open(8));
  memory.begin_turn();
  memory.loaded(3);
  memory.remove(3);
  memory.loaded(3);
  for (int times = 0; times < 3; ++times) {
    memory.remove(3);
    EXPECT_EQ(1, memory.left_again());
    memory.loaded(3, false);
    EXPECT_EQ(0, memory.left_again());
  }
}

TEST(Replacement, ForgetsWhatIsGivenUp) {
  Memory memory(kRoom);
  memory.sweep(0, kRoom);
  for (uint64_t block = 0; block < kRoom; ++block) {
    memory.discard(block);
  }
  memory.sweep(kRoom, 2 * kRoom);  // all of it may stay
  (void)memory.take_loads();
  memory.sweep(kRoom, 2 * kRoom);
  EXPECT_EQ(0, memory.take_loads());
}

TEST(Replacement, KeepsWhatFitsOfSweepsInBothDirections) {
  Memory memory(kRoom);
  memory.sweep(0, 2 * kRoom);
  (void)memory.take_loads();
  for (int pass = 0; pass < 6; ++pass) {
    for (uint64_t block = 0; block < 2 * kRoom; ++block) {
      memory.touch(pass % 2 == 0 ? 2 * kRoom - 1 - block : block);
    }
  }
  EXPECT_LE(memory.take_loads(), 6 * (kRoom + kRoom / 8));
}

TEST(Replacement, KeepsAVectorBesideASweep) {
  Memory memory(kRoom);
  std::mt19937 random(1);
  const uint64_t vector = kRoom / 2;
  const uint64_t scanned = 2 * kRoom;
  for (int pass = 0; pass < 6; ++pass) {
    for (uint64_t block = 0; block < scanned; ++block) {
      memory.touch(vector + block);
      memory.touch(random() % vector);
    }
  }
  // At best: everything once, then what does not fit.
  EXPECT_LE(memory.take_loads(), (vector + scanned + 5 * (vector + scanned - kRoom)) * 13 / 10);
}

TEST(Replacement, FollowsAWindowThatMoves) {
  Memory memory(kRoom);
  const uint64_t swept = 2 * kRoom;
  for (int pass = 0; pass < 4; ++pass) {
    for (uint64_t block = 0; block < swept; ++block) {
      for (const uint64_t behind : {0, 16, 32, 48}) {
        memory.touch(block < behind ? 0 : block - behind);
      }
    }
  }
  EXPECT_LE(memory.take_loads(), 4 * swept * 11 / 10);
}

TEST(Replacement, KeepsWhatIsUsedOfNeighboursThatWereLoadedInOrder) {
  Memory memory(kRoom);
  memory.sweep(0, kRoom);
  (void)memory.take_loads();
  const uint64_t hot = kRoom / 4;  // each fourth block, so that most are not the first of those that are seen together
  uint64_t scanned = kRoom;
  for (int pass = 0; pass < 20; ++pass) {
    for (uint64_t block = 0; block < hot; ++block) {
      memory.touch(4 * block + 3);
      memory.touch(scanned++ % (kBlocks - kRoom) + kRoom);
    }
  }
  EXPECT_LE(memory.take_loads(), 20 * hot * 3 / 2);  // 3782 if each block is hidden by itself, and then 3800
}

TEST(Replacement, NamesTheNeighboursOfWhatCannotBeHidden) {
  Replacement replacement;
  ASSERT_TRUE(replacement.open(kBlocks));
  for (uint64_t block = 0; block < 64; ++block) {
    replacement.loaded(block);
  }
  uint32_t first = replacement.next_to_hide();
  while (!replacement.is_hidden(first) || replacement.may_leave_together(first, 63)) {  // a passing one
    first = replacement.next_to_hide();
  }
  EXPECT_FALSE(replacement.is_hidden(first + 1));  // its use is that of `first`
  replacement.could_not_hide(first);
  std::vector<uint32_t> named;
  for (uint32_t next = replacement.next_to_hide(); next != kNoBlock; next = replacement.next_to_hide()) {
    named.push_back(next);
  }
  ASSERT_FALSE(named.empty());
  EXPECT_NE(first, named.front());
}

TEST(Replacement, LearnsANewWorkingSetThatFits) {
  Memory memory(kRoom);
  for (int pass = 0; pass < 4; ++pass) {
    memory.sweep(0, kRoom * 3 / 4);
  }
  (void)memory.take_loads();
  for (int pass = 0; pass < 6; ++pass) {
    memory.sweep(4000, 4000 + kRoom * 3 / 4);
  }
  (void)memory.take_loads();
  memory.sweep(4000, 4000 + kRoom * 3 / 4);
  EXPECT_LE(memory.take_loads(), kRoom / 16);
}

TEST(Replacement, FindsTheOneBlockThatCanLeave) {
  for (uint32_t free_one = 0; free_one < kRoom; free_one += 37) {
    Replacement replacement;
    ASSERT_TRUE(replacement.open(kBlocks));
    for (uint64_t block = 0; block < kRoom; ++block) {
      replacement.loaded(block);
    }
    uint64_t looks = 0;
    while (replacement.next_victim() != free_one) {
      replacement.move_behind_others(replacement.next_victim());  // held
      ASSERT_LE(++looks, kRoom);
    }
  }
}

TEST(Replacement, FindsTheOneBlockThatCanLeaveAmongTheFewThatPass) {
  constexpr uint64_t kFew = 12;
  Replacement replacement;
  ASSERT_TRUE(replacement.open(kBlocks));
  for (uint64_t block = 0; block < kFew; ++block) {
    replacement.loaded(block);
  }
  for (uint64_t block = 0; block < kFew - 2; ++block) {
    replacement.move_behind_others(block);  // held the last time: kept now
  }
  replacement.begin_looking();
  uint64_t looks = 0;
  while (replacement.next_victim() < kFew - 2) {
    replacement.move_behind_others(replacement.next_victim());
    ASSERT_LT(++looks, kFew);
  }
}

TEST(Replacement, IsNoWorseThanChanceAtRandom) {
  Memory memory(kRoom);
  std::mt19937 random(1);
  constexpr uint64_t kAccesses = 30000;
  for (uint64_t access = 0; access < kAccesses; ++access) {
    memory.touch(random() % (3 * kRoom));
  }
  EXPECT_LE(memory.take_loads(), kAccesses * 2 / 3 * 102 / 100 + kRoom);
}

}  // namespace
}  // namespace headroom::pager
