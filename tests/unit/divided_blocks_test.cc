// What the program says of memory holds for blocks whose pages are judged one by one, too (pager/divided_blocks.h).
#include "pager/divided_blocks.h"

#include <gtest/gtest.h>
#include <string.h>

#include <memory>
#include <random>
#include <string>

#include "block_array.h"
#include "environment.h"
#include "heap/heap.h"
#include "pager/pager.h"
#include "pager/present_pages.h"
#include "pager/state.h"
#include "seed.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using trace::counted;
using trace::Counter;

constexpr uint64_t kBlocks = 256;  // 64 MiB in 24 MiB
constexpr uint64_t kBlocksOfGroup = 16;
constexpr uint64_t kPageWords = arena::kPageBytes / 8;
constexpr uint64_t kComputesNs = 200'000;  // between two blocks: it does not jump about
constexpr int kMostUses = 20'000;

class DividedBlocks : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (make_userfaultfd_engine(strcmp(GetParam(), "userfaultfd-user") == 0) == nullptr) {
      GTEST_SKIP() << "the kernel refuses this engine here";
    }
    test::set_environment("24M", GetParam());
    ASSERT_EQ(start(), base::Status::kOk);
    array_ = std::make_unique<test::BlockArray>(kBlocks);
    for (uint64_t number = 0; number < kBlocks; ++number) {
      fill(number);
    }
  }
  void TearDown() override {
    if (array_ != nullptr) {
      EXPECT_TRUE(test::invariants_hold());
    }
  }
  void fill(uint64_t number) const {
    for (uint64_t page = 0; page < kPagesOfBlock; ++page) {
      array_->block(number)[page * kPageWords] = number + 1;
    }
  }
  void expect_content() const {
    for (uint64_t number = 0; number < kBlocks; ++number) {
      for (uint64_t page = 0; page < kPagesOfBlock; ++page) {
        ASSERT_EQ(array_->block(number)[page * kPageWords], number + 1) << number << ' ' << page;
      }
    }
  }
  /// Uses few pages of blocks here and there until `found` holds for the one used last, which it returns.
  template <typename Found>
  uint64_t use_few_pages_until(Found found) {
    for (int use = 0; use < kMostUses; ++use) {
      const uint64_t number = random_() % kBlocks;
      for (const uint64_t page : {19, 27, 35, 43}) {  // in the middle: no stream goes on there
        EXPECT_EQ(array_->block(number)[page * kPageWords], number + 1);
      }
      for (const uint64_t until = base::monotonic_ns() + kComputesNs; base::monotonic_ns() < until;) {
      }
      if (found(number)) {
        return number;
      }
    }
    ADD_FAILURE() << "none was found";
    return 0;
  }
  uint64_t divided_block() {
    return use_few_pages_until([this](uint64_t number) {
      const uint64_t index = array_->index_of(number);
      return array_->state_of(number) == arena::kSinglePages && pages_of(index).present == kAllPages &&
             !pages_are_moving(index);
    });
  }

  std::unique_ptr<test::BlockArray> array_;

 private:
  std::mt19937_64 random_{headroom::test::seed_of(11)};
};

TEST_P(DividedBlocks, WhatWillBeOverwrittenIsForgotten) {
  const uint64_t number = divided_block();
  const uint64_t forgotten = counted(Counter::kBlocksForgotten);
  will_overwrite(const_cast<uint64_t*>(array_->block(number)), arena::kBlockBytes);
  EXPECT_EQ(counted(Counter::kBlocksForgotten), forgotten + 1);
  fill(number);
  expect_content();
}

TEST_P(DividedBlocks, WhatIsNotNeededIsWholeAgainOrGone) {
  const uint64_t number = divided_block();
  will_not_need(const_cast<uint64_t*>(array_->block(number)), arena::kBlockBytes);
  EXPECT_NE(array_->state_of(number), arena::kSinglePages);
  expect_content();
}

TEST_P(DividedBlocks, WhatWasKnownGoesWithTheContent) {
  const uint64_t number = use_few_pages_until([this](uint64_t used) {
    const uint64_t index = array_->index_of(used);
    const uint64_t group = index / kBlocksOfGroup * kBlocksOfGroup;
    return group >= array_->index_of(0) && group + kBlocksOfGroup <= array_->index_of(kBlocks) && is_expected_thin(index);
  });
  heap::zero(const_cast<uint64_t*>(array_->block(0)), kBlocks * arena::kBlockBytes);
  EXPECT_FALSE(is_expected_thin(array_->index_of(number)));
}

TEST_P(DividedBlocks, OneThatIsWalkedToIsNotExpectedThin) {
  use_few_pages_until([this](uint64_t used) {
    const uint64_t index = array_->index_of(used);
    return index % kBlocksOfGroup != 0 && is_expected_thin(index) && !is_expected_thin(index - 1);
  });
}

TEST_P(DividedBlocks, ASurveyIsCutShortWhereTheRankWaits) {
  const uint64_t number = divided_block();
  const uint64_t index = array_->index_of(number);
  EXPECT_FALSE(join_unless_thin(index));  // the pager's thread sleeps meanwhile: nothing faults
  state.idle.store(true);
  EXPECT_TRUE(join_unless_thin(index));
  state.idle.store(false);
  EXPECT_EQ(array_->state_of(number), arena::kResident);
  expect_content();
}

INSTANTIATE_TEST_SUITE_P(Engines, DividedBlocks, testing::Values("userfaultfd", "userfaultfd-user"), [](const auto& instance) {
  std::string engine = instance.param;
  std::erase(engine, '-');
  return engine;
});

}  // namespace
}  // namespace headroom::pager
