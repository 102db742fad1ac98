// Which blocks are surveyed page by page, and when their neighbours are expected to be thin.
#include "pager/thin_blocks.h"

#include <gtest/gtest.h>

namespace headroom::pager {
namespace {

constexpr uint64_t kGroups = 64;
constexpr uint64_t kBlocksOfGroup = 16;

class ThinBlocksTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(blocks.open(kGroups * kBlocksOfGroup)); }

  /// How many groups are looked at when a block of each is used once.
  int groups_surveyed() {
    int surveyed = 0;
    for (uint64_t group = 0; group < kGroups; ++group) {
      surveyed += blocks.choose_to_survey(group * kBlocksOfGroup + 3) ? 1 : 0;
    }
    return surveyed;
  }
  ThinBlocks blocks;
};

TEST_F(ThinBlocksTest, FewGroupsAreLookedAtBeforeOneWasThin) {
  const int surveyed = groups_surveyed();
  EXPECT_GT(surveyed, 0);
  EXPECT_LT(surveyed, static_cast<int>(kGroups) / 2);
}

TEST_F(ThinBlocksTest, AllGroupsAreLookedAtOnceOneWasThin) {
  blocks.note_used(0, 3);
  EXPECT_EQ(groups_surveyed(), static_cast<int>(kGroups));
}

TEST_F(ThinBlocksTest, OneBlockOfAGroupIsSurveyedAtATime) {
  blocks.note_used(0, 3);
  EXPECT_TRUE(blocks.choose_to_survey(kBlocksOfGroup));
  for (uint64_t block = 1; block < kBlocksOfGroup; ++block) {
    EXPECT_FALSE(blocks.choose_to_survey(kBlocksOfGroup + block));
  }
}

TEST_F(ThinBlocksTest, NeighboursOfAThinBlockAreExpectedToBeThin) {
  blocks.note_used(5, 12);
  EXPECT_TRUE(blocks.is_expected_thin(0));
  EXPECT_TRUE(blocks.is_expected_thin(kBlocksOfGroup - 1));
  EXPECT_FALSE(blocks.is_expected_thin(kBlocksOfGroup));
}

TEST_F(ThinBlocksTest, BlocksThatAreUsedInAllPagesEndTheExpectation) {
  blocks.note_used(5, 12);
  blocks.note_used(6, 64);
  EXPECT_FALSE(blocks.is_expected_thin(5));
  int surveyed = 0;
  for (int use = 0; use < 640; ++use) {
    surveyed += blocks.choose_to_survey(5) ? 1 : 0;
  }
  EXPECT_EQ(surveyed, 10);  // it may have changed
}

TEST_F(ThinBlocksTest, WhatIsGivenUpIsForgotten) {
  blocks.note_used(0, 3);
  blocks.note_used(kBlocksOfGroup, 3);
  blocks.forget(1, 2 * kBlocksOfGroup - 1);  // all of the second group, and not all of the first
  EXPECT_TRUE(blocks.is_expected_thin(0));
  EXPECT_FALSE(blocks.is_expected_thin(kBlocksOfGroup));
  blocks.forget(0, kGroups * kBlocksOfGroup);
  EXPECT_FALSE(blocks.is_expected_thin(0));
  EXPECT_LT(groups_surveyed(), static_cast<int>(kGroups) / 2);  // as if none had ever been thin
}

TEST(ThinBlocks, PagesInOrderAreNeighbours) {
  EXPECT_FALSE(ThinBlocks::is_in_order(0x7f));
  EXPECT_TRUE(ThinBlocks::is_in_order(0xff));
  EXPECT_TRUE(ThinBlocks::is_in_order(uint64_t{0xff} << 56));
  EXPECT_TRUE(ThinBlocks::is_in_order(UINT64_MAX));
  EXPECT_FALSE(ThinBlocks::is_in_order(0x1fe01));
  EXPECT_FALSE(ThinBlocks::is_in_order(0x5555));
}

}  // namespace
}  // namespace headroom::pager
