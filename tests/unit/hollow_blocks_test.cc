// Blocks of which few pages are touched keep these alone (pager/hollow_blocks.h).
#include "pager/hollow_blocks.h"

#include <gtest/gtest.h>
#include <string.h>

#include <memory>
#include <string>

#include "block_array.h"
#include "environment.h"
#include "heap/heap.h"
#include "pager/pager.h"
#include "pager/present_pages.h"
#include "pager/state.h"
#include "pager/untouched_pages.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using trace::counted;
using trace::Counter;

constexpr uint64_t kBlocks = 256;  // 64 MiB
constexpr uint64_t kPageWords = arena::kPageBytes / 8;
constexpr uint64_t kTouched[] = {3, 40};  // pages of each block

class HollowBlocks : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (make_userfaultfd_engine(strcmp(GetParam(), "userfaultfd-user") == 0) == nullptr) {
      GTEST_SKIP() << "the kernel refuses this engine here";
    }
  }
  void TearDown() override {
    if (array_ != nullptr) {
      EXPECT_TRUE(test::invariants_hold());
    }
  }
  void begin(const char* memory) {
    test::set_environment(memory, GetParam());
    ASSERT_EQ(start(), base::Status::kOk);
    array_ = std::make_unique<test::BlockArray>(kBlocks);
  }
  void touch_few_pages() const {
    for (uint64_t number = 0; number < kBlocks; ++number) {
      for (const uint64_t page : kTouched) {
        array_->block(number)[page * kPageWords] = number + page;
      }
    }
  }
  void expect_content(uint64_t number) const {
    for (uint64_t page = 0; page < kPagesOfBlock; ++page) {
      const bool touched = page == kTouched[0] || page == kTouched[1];
      ASSERT_EQ(array_->block(number)[page * kPageWords], touched ? number + page : 0) << number << ' ' << page;
    }
  }
  void expect_all_content() const {
    for (uint64_t number = 0; number < kBlocks; ++number) {
      expect_content(number);
    }
  }
  /// A block that is hollow now, and all at rest.
  [[nodiscard]] uint64_t hollow_block() const {
    for (uint64_t number = 0; number < kBlocks; ++number) {
      const uint64_t index = array_->index_of(number);
      if (array_->state_of(number) == arena::kSinglePages && !pages_are_moving(index) && is_mostly_untouched(index)) {
        return number;
      }
    }
    ADD_FAILURE() << "none is hollow";
    return 0;
  }

  std::unique_ptr<test::BlockArray> array_;
};

TEST_P(HollowBlocks, WhatIsTouchedFitsWhereWholeBlocksWouldNot) {
  begin("24M");
  touch_few_pages();
  for (int pass = 0; pass < 3; ++pass) {
    for (uint64_t number = 0; number < kBlocks; ++number) {
      EXPECT_EQ(array_->block(number)[kTouched[1] * kPageWords], number + kTouched[1]);
    }
  }
  EXPECT_GT(counted(Counter::kBlocksHollow), kBlocks / 2);
  EXPECT_LT(counted(Counter::kBytesRead), kBlocks * arena::kBlockBytes / 4);
  expect_all_content();
}

TEST_P(HollowBlocks, ThoseThatHaveFewPagesWhenMemoryBecomesShort) {
  begin("256M");  // with a sanitizer a process has much that cannot move
  ASSERT_FALSE(is_armed());
  touch_few_pages();
  const test::BlockArray other(4 * kBlocks);
  ASSERT_TRUE(is_armed());
  EXPECT_GT(counted(Counter::kBlocksHollow), kBlocks / 2);
  const uint64_t number = hollow_block();
  EXPECT_EQ(__builtin_popcountll(pages_of(array_->index_of(number)).present), 2);
  expect_all_content();
}

TEST_P(HollowBlocks, AHollowBlockCanBeFilled) {
  begin("24M");
  touch_few_pages();
  const uint64_t number = hollow_block();
  const uint64_t filled = counted(Counter::kBlocksFilled);
  expect_content(number);
  for (uint64_t page = 0; page < kPagesOfBlock; ++page) {
    array_->block(number)[page * kPageWords] = number + page;
  }
  EXPECT_GT(counted(Counter::kBlocksFilled), filled);
  for (uint64_t other = 0; other < kBlocks; ++other) {  // drives it out
    if (other != number) {
      expect_content(other);
    }
  }
  for (uint64_t page = 0; page < kPagesOfBlock; ++page) {
    ASSERT_EQ(array_->block(number)[page * kPageWords], number + page);
  }
}

TEST_P(HollowBlocks, ContentThatIsGivenUpIsZeroAndNothingIsKnownOfIt) {
  begin("24M");
  touch_few_pages();
  const uint64_t number = hollow_block();
  heap::zero(const_cast<uint64_t*>(array_->block(number)), arena::kBlockBytes);
  EXPECT_EQ(zero_pages_on_storage(array_->index_of(number), UINT64_MAX), 0U);
  for (uint64_t page = 0; page < kPagesOfBlock; ++page) {
    ASSERT_EQ(array_->block(number)[page * kPageWords], 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, HollowBlocks, testing::Values("userfaultfd", "userfaultfd-user"), [](const auto& instance) {
  std::string engine = instance.param;
  std::erase(engine, '-');
  return engine;
});

}  // namespace
}  // namespace headroom::pager
