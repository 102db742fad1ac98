// How content comes from storage, as the plan says: the page alone or its block. No pager, engine or store.
#include "pager/fault_plan.h"

#include <gtest/gtest.h>

#include "arena/arena.h"

namespace headroom::pager {
namespace {

constexpr uint64_t kBlocks = 1024;
constexpr int kPagesWorthABlock = 6;

struct Memory final : MemoryView {
  [[nodiscard]] uint64_t share() const override { return share_blocks * arena::kBlockBytes; }
  [[nodiscard]] int64_t for_one() const override { return static_cast<int64_t>(for_one_blocks * arena::kBlockBytes); }
  [[nodiscard]] uint64_t came_back() const override { return blocks_came_back; }
  [[nodiscard]] int pages_worth_a_block() const override { return kPagesWorthABlock; }
  [[nodiscard]] uint64_t blocks() const override { return blocks_with_addresses; }
  uint64_t blocks_with_addresses = kBlocks;
  uint64_t share_blocks = 128;
  uint64_t for_one_blocks = 512;
  uint64_t blocks_came_back = 0;
};

class FaultPlan : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(random.open(kBlocks)); }

  [[nodiscard]] Plan stored(uint64_t block, uint32_t page, StoredBlock known = {}) const {
    return plan_stored({block, page, false, true}, known, random, memory);
  }
  [[nodiscard]] Plan missing(uint64_t block, uint32_t page, int pages, bool is_zero = false) const {
    return plan_missing_page({block, page, false, true}, {pages, is_zero}, random, memory);
  }
  /// Faults one after the other between which the program computes for so long.
  void fault(int count, uint64_t each_ns, bool in_order = false) {
    for (int index = 0; index < count; ++index) {
      random.note_storage_fault(in_order, now_ns += each_ns, memory);
    }
  }
  void jump_about() { fault(64, 1'000); }
  /// Pages of it are read alone, none beside another.
  void read_pages(uint64_t block, int count) {
    for (int index = 0; index < count; ++index) {
      random.note_page_read(block, static_cast<uint32_t>(index * 3), memory);
    }
  }

  Memory memory;
  RandomAccess random;
  uint64_t now_ns = 0;
};

TEST_F(FaultPlan, WhoComputesBetweenFaultsGetsBlocks) {
  fault(64, 1'000'000);
  EXPECT_TRUE(stored(10, 3).whole);
}

TEST_F(FaultPlan, WhoJumpsAboutGetsPages) {
  EXPECT_TRUE(stored(10, 3).whole);
  jump_about();
  const Plan plan = stored(10, 3);
  EXPECT_FALSE(plan.whole);
  EXPECT_EQ(plan.blocks_ahead, 0U);
}

TEST_F(FaultPlan, ItIsBelievedAfterAsManyFaultsAsAnEighthOfMemoryHasBlocks) {
  memory.share_blocks = 800;
  fault(99, 1'000);
  EXPECT_TRUE(stored(10, 3).whole);
  fault(1, 1'000);
  EXPECT_FALSE(stored(10, 3).whole);
}

TEST_F(FaultPlan, FaultsInOrderRaiseDoubts) {
  jump_about();
  fault(4, 1'000, true);  // each weighs as much as four, and sixteen more are remembered than are needed
  EXPECT_FALSE(stored(10, 3).whole);
  fault(1, 1'000, true);
  EXPECT_TRUE(stored(10, 3).whole);
}

TEST_F(FaultPlan, ReadersInOrderAndHoldersAndEnginesWithoutPagesGetBlocks) {
  jump_about();
  EXPECT_TRUE(plan_stored({10, 3, true, true}, {}, random, memory).whole);
  EXPECT_TRUE(plan_stored({10, kWholeBlock, false, true}, {}, random, memory).whole);
  EXPECT_TRUE(plan_stored({10, 3, false, false}, {}, random, memory).whole);
  EXPECT_TRUE(plan_stored({10, 3, false, false}, {true, true, true}, random, memory).whole);
}

TEST_F(FaultPlan, APageBesideOneThatWasAskedForIsNoJump) {
  jump_about();
  random.note_asked(10, 4);
  EXPECT_TRUE(stored(10, 3).whole);
  EXPECT_TRUE(stored(10, 5).whole);
  EXPECT_FALSE(stored(10, 4).whole) << "the same access tries again";
  EXPECT_FALSE(stored(10, 6).whole);
}

TEST_F(FaultPlan, BlocksOfWhichFewPagesAreUsedComeByPages) {
  EXPECT_FALSE(stored(10, 3, {.is_hollow = true, .page_is_zero = false, .is_thin = false}).whole);
  EXPECT_FALSE(stored(10, 3, {.is_hollow = false, .page_is_zero = true, .is_thin = false}).whole);
  EXPECT_FALSE(stored(10, 3, {.is_hollow = false, .page_is_zero = false, .is_thin = true}).whole);
  EXPECT_TRUE(plan_stored({10, 3, true, true}, {false, false, true}, random, memory).whole) << "who goes over it reads it";
}

TEST_F(FaultPlan, ABlockOfWhichManyPagesWereReadAloneComesWhole) {
  jump_about();
  read_pages(10, kPagesWorthABlock);
  const Plan plan = stored(10, 40);
  EXPECT_TRUE(plan.whole && plan.jumps_about);
  read_pages(20, kPagesWorthABlock - 1);
  EXPECT_FALSE(stored(20, 40).whole);
}

TEST_F(FaultPlan, ThoseBehindItComeWithIt) {
  jump_about();
  for (uint64_t block = 10; block < 14; ++block) {
    read_pages(block, kPagesWorthABlock);
  }
  EXPECT_EQ(stored(10, 40).blocks_ahead, 3U);
  ASSERT_TRUE(random.note_better_whole(10));
  EXPECT_FALSE(random.note_better_whole(10)) << "it counts once in a turn";
  EXPECT_EQ(stored(10, 40).blocks_ahead, 3U);
  memory.blocks_with_addresses = 12;
  EXPECT_EQ(stored(10, 40).blocks_ahead, 1U) << "there is no memory behind that";
  memory.blocks_with_addresses = kBlocks;
  for (uint64_t block = 14; block < 100; ++block) {
    read_pages(block, kPagesWorthABlock);
  }
  EXPECT_EQ(stored(10, 40).blocks_ahead, 32U) << "so that a fault stays short";
}

TEST_F(FaultPlan, NotIfTheyWouldNotFitEvenInAllOfMemory) {
  memory.for_one_blocks = 8;
  jump_about();
  for (uint64_t block = 0; block < 9; ++block) {
    read_pages(block, kPagesWorthABlock);
  }
  const Plan plan = stored(3, 40);
  EXPECT_TRUE(!plan.whole && plan.too_much);
  random.note_too_much();
  memory.for_one_blocks = 512;
  EXPECT_FALSE(stored(3, 40).whole) << "that is remembered";
  for (int turn = 0; turn < 15; ++turn) {
    random.begin_turn();
    read_pages(3, kPagesWorthABlock);
    EXPECT_FALSE(stored(3, 40).whole) << "after turn " << turn;
  }
  random.begin_turn();
  read_pages(3, kPagesWorthABlock);
  EXPECT_TRUE(stored(3, 40).whole) << "for some turns";
}

TEST_F(FaultPlan, ManyBlocksOfWhichFewPagesAreReadAreNotTooMuch) {
  memory.for_one_blocks = 8;
  jump_about();
  for (uint64_t block = 0; block < 100; ++block) {
    read_pages(block, 1);
    EXPECT_FALSE(stored(block, 40).too_much);
  }
  random.begin_turn();
  read_pages(3, kPagesWorthABlock);
  EXPECT_TRUE(stored(3, 40).whole);
}

TEST_F(FaultPlan, ThatABlockIsBetterWholeIsBelievedForSomeTurnsAndAskedAgain) {
  jump_about();
  constexpr uint64_t kMany = 64;
  const auto whole = [this] {
    uint64_t count = 0;
    for (uint64_t block = 0; block < kMany; ++block) {
      count += stored(block, 40).whole ? 1 : 0;
    }
    return count;
  };
  for (uint64_t block = 0; block < kMany; ++block) {
    read_pages(block, kPagesWorthABlock);
  }
  for (int turn = 0; turn < 15; ++turn) {
    random.begin_turn();
    EXPECT_EQ(whole(), kMany);
  }
  random.begin_turn();
  const uint64_t believed = whole();
  EXPECT_LT(believed, kMany) << "some are asked";
  EXPECT_GT(believed, kMany / 2) << "and the others are not, meanwhile";
  for (int turn = 0; turn < 16; ++turn) {
    random.begin_turn();
  }
  EXPECT_EQ(whole(), 0U) << "none has said so since";
}

TEST_F(FaultPlan, NotIfBlocksComeBackMoreOftenThanItJumps) {
  jump_about();
  read_pages(10, kPagesWorthABlock);
  memory.blocks_came_back = 2;
  EXPECT_FALSE(stored(10, 40).whole);
}

TEST_F(FaultPlan, WhatBlocksNeedIsOfTheTurn) {
  read_pages(10, 1);
  read_pages(10, 1);
  EXPECT_EQ(random.pages_read_in_turn(), 1U);
  EXPECT_EQ(random.pages_came_back(), 1U);
  EXPECT_TRUE(random.note_better_whole(11));
  EXPECT_EQ(random.needed(), 2 * arena::kBlockBytes);
  random.begin_turn();
  EXPECT_EQ(random.needed(), 0U);
  EXPECT_EQ(random.pages_read_in_turn(), 0U);
}

TEST_F(FaultPlan, AMissingPageComesAloneUntilHalfIsHere) {
  EXPECT_FALSE(missing(10, 3, 31).whole);
  const Plan plan = missing(10, 3, 32);
  EXPECT_TRUE(plan.whole && plan.half_is_here && !plan.goes_on && !plan.jumps_about);
}

TEST_F(FaultPlan, AReaderThatGoesOnInABlockOfPagesGetsAllOfIt) {
  random.note_asked(10, 3);
  const Plan beside = missing(10, 4, 1);
  EXPECT_TRUE(beside.whole && beside.goes_on);
  // Others' faults in between do not hide that it does.
  random.note_page_read(20, 7, memory);
  random.note_page_read(20, 8, memory);
  random.note_asked(20, 8);
  for (uint64_t other = 100; other < 110; ++other) {
    random.note_asked(other, 0);
  }
  EXPECT_TRUE(missing(20, 9, 2).goes_on);
  EXPECT_FALSE(missing(20, 10, 2).goes_on);
}

TEST_F(FaultPlan, AZeroPageIsNoReasonToReadItsBlock) {
  jump_about();
  read_pages(10, kPagesWorthABlock);
  EXPECT_TRUE(missing(10, 40, kPagesWorthABlock).whole);
  EXPECT_FALSE(missing(10, 40, kPagesWorthABlock, true).whole);
}

TEST_F(FaultPlan, SparseReadersGetPagesUntilTheyGoOnInOrder) {
  random.note_sparse_reader();
  EXPECT_TRUE(random.take_wish_for_room());
  EXPECT_FALSE(random.take_wish_for_room()) << "it was taken";
  EXPECT_FALSE(stored(10, 3).whole);
  for (int half = 0; half < 17; ++half) {
    EXPECT_TRUE(random.expects_sparse_readers());
    random.note_read_in_order();
  }
  EXPECT_TRUE(stored(10, 3).whole);
}

}  // namespace
}  // namespace headroom::pager
