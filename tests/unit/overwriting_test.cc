// What a copy within a rank's memory lets the pager forget: what the copy fills whole, and nothing that it reads.
#include <gtest/gtest.h>

#include "direct/endpoint.h"
#include "environment.h"
#include "heap/heap.h"
#include "pager/state.h"
#include "trace/counters.h"

namespace headroom::direct {
namespace {

using trace::counted;
using trace::Counter;

constexpr uint64_t kBlocks = 256;  // 64 MiB in 24 MiB
constexpr uint64_t kWords = arena::kBlockBytes / 8;

class Overwriting : public testing::Test {
 protected:
  void SetUp() override {
    test::set_environment("24M", "sigsegv");
    ASSERT_EQ(pager::start(), base::Status::kOk);
    memory_ = static_cast<char*>(heap::allocate((kBlocks + 1) * arena::kBlockBytes, 1, false));
    ASSERT_NE(memory_, nullptr);
    uint64_t offset = 0;
    ASSERT_TRUE(arena::find_offset(pager::partition(), reinterpret_cast<uintptr_t>(memory_), offset));
    first_ = arena::block_of(offset + arena::kBlockBytes - 1);
    memory_ += first_ * arena::kBlockBytes - offset;
    for (uint64_t number = 0; number < kBlocks; ++number) {
      word(number) = number + 1;
    }
    ASSERT_TRUE(pager::is_armed());
  }
  [[nodiscard]] volatile uint64_t& word(uint64_t number) const {
    return reinterpret_cast<volatile uint64_t*>(memory_)[number * kWords];
  }
  [[nodiscard]] Content blocks(uint64_t number, uint64_t count) const {
    return {memory_ + number * arena::kBlockBytes, count * arena::kBlockBytes, nullptr};
  }
  [[nodiscard]] bool is_stored(uint64_t number) const {
    return arena::state_of(pager::partition().blocks[first_ + number].load()) == arena::kStored;
  }
  /// The first of `count` blocks that are on storage.
  [[nodiscard]] uint64_t stored_run(uint64_t count) const {
    uint64_t run = 0;
    for (uint64_t number = 0; number < kBlocks; ++number) {
      run = is_stored(number) ? run + 1 : 0;
      if (run == count) {
        return number + 1 - count;
      }
    }
    ADD_FAILURE() << "no " << count << " blocks in a row on storage";
    return 0;
  }
  void expect_kept(uint64_t first, uint64_t count) const {
    for (uint64_t number = first; number < first + count; ++number) {
      EXPECT_EQ(word(number), number + 1);
    }
  }

 private:
  char* memory_ = nullptr;
  uint64_t first_ = 0;
};

TEST_F(Overwriting, WhatIsFilledWholeIsNotReadAgain) {
  const uint64_t run = stored_run(8);
  expect_overwriting(blocks(run, 4), blocks(run + 4, 4));
  for (uint64_t number = run; number < run + 4; ++number) {
    EXPECT_FALSE(is_stored(number));
  }
  for (uint64_t number = run + 4; number < run + 8; ++number) {
    EXPECT_TRUE(is_stored(number));
  }
  EXPECT_EQ(counted(Counter::kBytesRead), 0);
  expect_kept(run + 4, 4);
}

TEST_F(Overwriting, OnlyAsMuchAsTheSourceFills) {
  const uint64_t run = stored_run(8);
  expect_overwriting(blocks(run, 4), blocks(run + 6, 2));
  EXPECT_FALSE(is_stored(run));
  EXPECT_FALSE(is_stored(run + 1));
  expect_kept(run + 2, 6);
}

TEST_F(Overwriting, WhatIsReadItselfIsKept) {
  const uint64_t run = stored_run(8);
  expect_overwriting(blocks(run, 4), blocks(run, 4));
  expect_overwriting(blocks(run + 2, 4), blocks(run, 4));
  expect_overwriting(blocks(run, 4), blocks(run + 3, 4));
  expect_kept(run, 8);
}

}  // namespace
}  // namespace headroom::direct
