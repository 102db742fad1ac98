// Writes that find no room on storage although there seemed to be some: what they were to write stays, and goes to another
// directory if there is one.
#include "pager/store_room.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <random>
#include <vector>

#include "block_array.h"
#include "environment.h"
#include "heap/heap.h"
#include "pager/pager.h"
#include "pager/state.h"
#include "seed.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using trace::counted;
using trace::Counter;

constexpr uint64_t kArray = 72 << 20;
constexpr uint64_t kWords = kArray / 8;
constexpr uint64_t kFits = (8 << 20) / 8;  // words
constexpr uint64_t kWordsOfPage = arena::kPageBytes / 8;

uint64_t* start_with_fault(const char* fault) {
  setenv("HEADROOM_STORE_FAULT", fault, 1);
  setenv("HEADROOM_STORAGE_WAIT", "0", 1);
  test::set_environment("24M", "auto");
  return start() == base::Status::kOk ? static_cast<uint64_t*>(heap::allocate(kArray, 1, false)) : nullptr;
}

uint64_t count_wrong(const uint64_t* array, uint64_t words, uint64_t round) {
  uint64_t wrong = 0;
  for (uint64_t index = 0; index < words; ++index) {
    wrong += array[index] != index * 3 + round ? 1 : 0;
  }
  return wrong;
}

void fill(uint64_t* array, uint64_t words, uint64_t round) {
  for (uint64_t index = 0; index < words; ++index) {
    array[index] = index * 3 + round;
  }
}

TEST(StoreRoom, AWriteThatNobodyNeedsDoesNotEndARunThatFits) {
  uint64_t* array = start_with_fault("write:ENOSPC:1+");
  ASSERT_TRUE(is_armed());
  fill(array, kFits, 1);
  for (int round = 0; round < 10; ++round) {
    will_not_need(array, kFits * 8);
    usleep(20'000);
    set_idle(true);
    usleep(100'000);
    set_idle(false);
    EXPECT_EQ(count_wrong(array, kFits, 1), 0U);
  }
  EXPECT_GT(counted(Counter::kEvictionsGivenUp), 0U);
  EXPECT_EQ(counted(Counter::kBytesWritten), 0U);
  EXPECT_EQ(counted(Counter::kStorageFullNs), 0U);
  EXPECT_TRUE(test::invariants_hold());
}

TEST(StoreRoomDeathTest, IfSomebodyNeedsItTheRunEndsWithTheCause) {
  EXPECT_EXIT(
      {
        uint64_t* array = start_with_fault("write:EDQUOT:20+");
        fill(array, kWords, 1);
        _exit(0);
      },
      testing::ExitedWithCode(2), "writing .* failed: Disk quota exceeded.*--storage");
}

/// Each write fails after longer than a file is left alone for, so that there always is one that may be tried again.
TEST(StoreRoomDeathTest, WritesThatFailSlowlyInTwoDirectoriesInTurnAreAPause) {
  setenv("HEADROOM_STORE_FAULT", "late:300000:write:ENOSPC:20+", 1);
  setenv("HEADROOM_STORAGE_WAIT", "2", 1);
  EXPECT_EXIT(
      {
        alarm(30);
        test::set_environment("24M", "auto");
        setenv("HEADROOM_STORAGE", "/var/tmp:/var/tmp", 1);
        base::load_settings();
        if (start() == base::Status::kOk) {
          fill(static_cast<uint64_t*>(heap::allocate(kArray, 1, false)), kWords, 1);
        }
        _exit(0);
      },
      testing::ExitedWithCode(2),
      "storage in .* is full .No space left on device.*the run pauses.*storage add.*writing .* failed: No space left on "
      "device");
}

/// What is written from the `nth` time on to the first of two directories fails.
class StoreRoomElsewhere : public testing::TestWithParam<int> {};

TEST_P(StoreRoomElsewhere, WhatOneDirectoryCannotTakeGoesToAnother) {
  setenv("HEADROOM_STORE_FAULT", ("write:ENOSPC:" + std::to_string(GetParam()) + "+@0").c_str(), 1);
  setenv("HEADROOM_STORAGE_WAIT", "5", 1);
  setenv("HEADROOM_CHECKSUMS", "on", 1);
  test::set_environment("24M", "auto");
  setenv("HEADROOM_STORAGE", "/var/tmp:/var/tmp", 1);
  base::load_settings();
  ASSERT_EQ(start(), base::Status::kOk);
  auto* array = static_cast<uint64_t*>(heap::allocate(kArray, 1, false));
  fill(array, kWords, 1);
  EXPECT_EQ(count_wrong(array, kWords, 1), 0U);
  fill(array, kWords, 2);
  EXPECT_EQ(count_wrong(array, kWords, 2), 0U);
  // Here and there: single pages of blocks whose rest is on storage.
  std::mt19937_64 random(headroom::test::seed_of(7));
  for (int change = 0; change < 20'000; ++change) {
    const uint64_t page = random() % (kWords / kWordsOfPage);
    for (uint64_t word = page * kWordsOfPage; word < (page + 1) * kWordsOfPage; word += 8) {
      ASSERT_TRUE(array[word] == word * 3 + 2 || array[word] == word * 3 + 3);
      array[word] = word * 3 + 3;
    }
  }
  uint64_t wrong = 0;
  for (uint64_t index = 0; index < kWords; ++index) {
    wrong += array[index] != index * 3 + 2 && (index % 8 != 0 || array[index] != index * 3 + 3) ? 1 : 0;
  }
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(counted(Counter::kStripesElsewhere), 0U);
  EXPECT_TRUE(test::invariants_hold());
}

INSTANTIATE_TEST_SUITE_P(From, StoreRoomElsewhere, testing::Values(1, 15, 60, 150));

/// A block that has changed may be divided later (divided_blocks.h): what is not here must then be where its stripe is.
TEST(StoreRoom, AStripeThatMovesTakesWhatIsStoredOfChangedBlocksAlong) {
  constexpr uint64_t kBlocks = kArray / arena::kBlockBytes;
  constexpr uint64_t kChange = 1'000'000;
  setenv("HEADROOM_STORAGE_WAIT", "5", 1);
  test::set_environment("24M", "auto");
  setenv("HEADROOM_STORAGE", "/var/tmp:/var/tmp", 1);
  base::load_settings();
  ASSERT_EQ(start(), base::Status::kOk);
  const test::BlockArray array(kBlocks);
  for (uint64_t number = 0; number < kBlocks; ++number) {
    for (uint64_t word = 0; word < arena::kBlockBytes / 8; word += kWordsOfPage) {
      array.block(number)[word] = number + 1;  // of few pages, these alone would stay (hollow_blocks.h)
    }
  }
  const auto is_stored_stripe = [&](uint64_t number) {
    bool stored = array.index_of(number) % kTransferBlocks == 0;
    for (uint64_t each = 0; each < kTransferBlocks; ++each) {
      stored = stored && array.state_of(number + each) == arena::kStored;
    }
    return stored;
  };
  uint64_t first = 0;
  while (first + kTransferBlocks < kBlocks && !is_stored_stripe(first)) {
    ++first;
  }
  ASSERT_TRUE(is_stored_stripe(first));
  auto* const changed = const_cast<uint64_t*>(array.block(first));
  hold(changed, 8, true);  // so that it stays, and is as dirty as it was read
  array.block(first)[0] = kChange;
  const uint64_t index = array.index_of(first);
  const uint64_t stripe = index / kTransferBlocks;
  constexpr uint64_t kBoth = arena::kDirty | arena::kHasCopy;
  ASSERT_EQ(partition().blocks[index].load() & kBoth, kBoth);
  const uint8_t before = state.files.placed[stripe];
  for (int attempt = 0; attempt < 100 && state.files.placed[stripe] == before; ++attempt) {
    array.block(first + 1)[0] = first + 2;
    const uint32_t asker = stand_still();  // what follows is the pager's thread's
    note_lack_of_store_room(index * arena::kBlockBytes, ENOSPC);
    go_on(asker);
    will_not_need(const_cast<uint64_t*>(array.block(first + 1)), (kBlocks - first - 1) * arena::kBlockBytes);
    usleep(15'000);
  }
  ASSERT_NE(state.files.placed[stripe], before);
  alignas(4096) static char content[arena::kBlockBytes];
  const StorePlace place = place_of(state.files, index * arena::kBlockBytes);
  ASSERT_EQ(pread(place.descriptor, content, sizeof content, static_cast<off_t>(place.offset)),
            static_cast<ssize_t>(sizeof content));
  uint64_t stored = 0;
  memcpy(&stored, content, sizeof stored);
  EXPECT_EQ(stored, first + 1);  // as it was when last clean
  drop_hold(changed, 8, true);
  for (uint64_t number = 0; number < kBlocks; ++number) {
    EXPECT_EQ(array.block(number)[0], number == first ? kChange : number + 1);
  }
  EXPECT_TRUE(test::invariants_hold());
}

}  // namespace
}  // namespace headroom::pager
