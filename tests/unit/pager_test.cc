// The pager: content survives eviction on every engine and store, clean blocks are not written, zeros are not stored, holds
// keep blocks, invariants hold.
#include "pager/pager.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "environment.h"
#include "heap/heap.h"
#include "pager/page_table.h"
#include "pager/state.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using trace::counted;
using trace::Counter;

constexpr uint64_t kBudget = 24 << 20;
constexpr uint64_t kArray = 72 << 20;

uint64_t* start_with_array(const char* engine, const char* store = "auto") {
  test::set_environment("24M", engine, store);
  if (start() != base::Status::kOk) {
    return nullptr;
  }
  return static_cast<uint64_t*>(heap::allocate(kArray, 1, false));
}

uint64_t expected(uint64_t index, uint64_t round) { return (index + 1) * 0x9e3779b97f4a7c15U + round; }

void fill(uint64_t* array, uint64_t round) {
  for (uint64_t index = 0; index < kArray / 8; ++index) {
    array[index] = expected(index, round);
  }
}

/// An array of so many words under that budget, each what is expected in round 0; nullptr if that cannot be had.
uint64_t* start_with_words(uint64_t words, const char* memory, const char* engine) {
  test::set_environment(memory, engine);
  auto* array = start() == base::Status::kOk ? static_cast<uint64_t*>(heap::allocate(words * 8, 1, false)) : nullptr;
  for (uint64_t index = 0; array != nullptr && index < words; ++index) {
    array[index] = expected(index, 0);
  }
  return array;
}

uint64_t count_wrong(const uint64_t* array, uint64_t round) {
  uint64_t wrong = 0;
  for (uint64_t index = 0; index < kArray / 8; ++index) {
    wrong += array[index] != expected(index, round) ? 1 : 0;
  }
  return wrong;
}

class EveryEngine : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const bool user_mode = strcmp(GetParam(), "userfaultfd-user") == 0;
    if (strcmp(GetParam(), "sigsegv") != 0 && make_userfaultfd_engine(user_mode) == nullptr) {
      GTEST_SKIP() << "the kernel refuses this engine here";
    }
  }
  void TearDown() override {
    if (is_running()) {
      EXPECT_TRUE(test::invariants_hold());
    }
  }
};

TEST_P(EveryEngine, ContentSurvives) {
  uint64_t* array = start_with_array(GetParam());
  ASSERT_NE(array, nullptr);
  for (uint64_t round = 0; round < 3; ++round) {
    fill(array, round);
    ASSERT_EQ(count_wrong(array, round), 0U);
  }
  // At least what does not fit was really moved, and nothing more than the budget was ever resident.
  EXPECT_GE(counted(Counter::kBytesWritten), 3 * (kArray - kBudget));
  EXPECT_GE(counted(Counter::kBytesRead), 3 * (kArray - kBudget));
  // (Memory outside the arena is measured each second; what has come to it counts before it is made room for.)
  EXPECT_LE(session().ledger->peak_reserved_bytes.load(), static_cast<int64_t>(kBudget + arena::kBlockBytes));
  EXPECT_GE(counted(Counter::kBlocksTwiceOut), (kArray - kBudget) / arena::kBlockBytes);
  EXPECT_GE(counted(Counter::kBlocksTouchedAhead), kArray / arena::kBlockBytes / 2);  // and did not fault
  EXPECT_LE(counted(Counter::kFaultsFresh), kArray / arena::kBlockBytes / 2);
  char word[32];
  EXPECT_STREQ(base::choice_name("engine", static_cast<int>(engine()), word, sizeof word), GetParam());
}

/// The flags of the page at `address` (kernel: Documentation/admin-guide/mm/pagemap.rst); 0 if there is none.
uint64_t page_flags(uintptr_t address) {
  static const int flags_of_all = ::open("/proc/kpageflags", O_RDONLY | O_CLOEXEC);
  uint64_t entry = 0;
  uint64_t flags = 0;
  const bool present = read_page_table(address, entry) && (entry >> 63) != 0;
  const off_t number = static_cast<off_t>(entry & ((uint64_t{1} << 55) - 1));
  return present && pread(flags_of_all, &flags, sizeof flags, number * 8) == sizeof flags ? flags : 0;
}

/// Fills and reads an array of three times the budget, and looks at the pages of what is in memory then.
void expect_whole_blocks(const char* memory, uint64_t budget, const char* engine) {
  const uint64_t bytes = 3 * budget;
  test::set_environment(memory, engine);
  ASSERT_EQ(start(), base::Status::kOk);
  if (!partition().blocks_are_pages || geteuid() != 0) {
    GTEST_SKIP() << "Linux 6.14, user namespaces and root are needed";
  }
  auto* array = static_cast<uint64_t*>(heap::allocate(bytes, 1, false));
  ASSERT_NE(array, nullptr);
  for (uint64_t round = 0; round < 2; ++round) {
    for (uint64_t index = 0; index < bytes / 8; ++index) {
      array[index] = expected(index, round);
    }
    uint64_t wrong = 0;
    for (uint64_t index = 0; index < bytes / 8; ++index) {
      wrong += array[index] != expected(index, round) ? 1 : 0;
    }
    ASSERT_EQ(wrong, 0U);
  }
  constexpr uint64_t kHead = 1 << 15;
  constexpr uint64_t kTail = 1 << 16;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(array) / arena::kBlockBytes * arena::kBlockBytes;
  uint64_t here = 0;
  uint64_t whole = 0;
  for (uintptr_t block = begin; block < begin + bytes; block += arena::kBlockBytes) {
    const uint64_t first = page_flags(block);
    here += first != 0 ? 1 : 0;
    EXPECT_EQ(first & kTail, 0U) << "a page that is larger than a block cannot be given back with it";
    whole += (first & kHead) != 0 && (page_flags(block + arena::kBlockBytes - arena::kPageBytes) & kTail) != 0 ? 1 : 0;
  }
  EXPECT_GT(here, budget / arena::kBlockBytes / 4);
  EXPECT_GT(whole, here * 3 / 4);
  EXPECT_GE(counted(Counter::kBlocksMadeWhole), (bytes - budget) / arena::kBlockBytes);
}

TEST_P(EveryEngine, BlocksThatComeBackAreOnePage) { expect_whole_blocks("24M", 24 << 20, GetParam()); }

TEST_P(EveryEngine, BlocksThatComeBackAreOnePageWithoutReadBuffers) {
  expect_whole_blocks("64M", 64 << 20, GetParam());
  EXPECT_EQ(counted(Counter::kBytesReadBuffered), 0U);
}

TEST_P(EveryEngine, WhoWritesToWhatIsReadAheadFaultsOnce) {
  constexpr uint64_t kLarge = 64 << 20;
  constexpr uint64_t kWords = 3 * kLarge / 8;
  uint64_t* array = start_with_words(kWords, "64M", GetParam());
  ASSERT_NE(array, nullptr);
  const uint64_t faults = counted(Counter::kFaultsFirstWrite);
  const uint64_t read = counted(Counter::kBytesRead);
  for (uint64_t round = 1; round < 4; ++round) {
    for (uint64_t index = 0; index < kWords; ++index) {
      array[index] += 1;  // read first, then written
    }
  }
  const uint64_t blocks = (counted(Counter::kBytesRead) - read) / arena::kBlockBytes;
  EXPECT_GT(blocks, 3 * 2 * kLarge / arena::kBlockBytes * 3 / 4);
  EXPECT_GT(counted(Counter::kBlocksReadWritable), blocks / 2);
  EXPECT_LT(counted(Counter::kFaultsFirstWrite) - faults, blocks / 2);
  // Who only reads does not pay for that: what was guessed wrong ends at the next marker.
  uint64_t wrong = 0;
  for (uint64_t round = 0; round < 2; ++round) {
    const uint64_t written = counted(Counter::kBytesWritten);
    for (uint64_t index = 0; index < kWords; ++index) {
      wrong += array[index] != expected(index, 0) + 3 ? 1 : 0;
    }
    EXPECT_LT(counted(Counter::kBytesWritten) - written, round == 0 ? kLarge * 5 / 4 : kLarge / 8);
  }
  EXPECT_EQ(wrong, 0U);
}

TEST_P(EveryEngine, OneOfManyNeighboursIsHidden) {
  constexpr uint64_t kWords = (80 << 20) / 8;
  uint64_t* array = start_with_words(kWords, "64M", GetParam());
  ASSERT_NE(array, nullptr);
  uint64_t wrong = 0;
  for (uint64_t round = 0; round < 12; ++round) {  // forward and backward; every other time half of the words are changed
    for (uint64_t each = 0; each < kWords; ++each) {
      const uint64_t index = round < 6 ? each : kWords - 1 - each;
      const uint64_t now = expected(index, index % 2 == 0 ? (round + 1) / 2 : 0);
      wrong += array[index] != now ? 1 : 0;
      if (index % 2 == 0 && round % 2 == 0) {
        array[index] = now + 1;
      }
    }
  }
  EXPECT_EQ(wrong, 0U);
  // Each pass uses what was kept again, three quarters of memory; two of three faults are spared, if not seven of eight.
  EXPECT_GT(counted(Counter::kFaultsProbation), 0U);
  EXPECT_LT(counted(Counter::kFaultsProbation), 12 * (48 << 20) / arena::kBlockBytes / 3);
}

TEST_P(EveryEngine, WhatIsOnlyReadIsNotWritten) {
  uint64_t* array = start_with_array(GetParam());
  fill(array, 1);
  ASSERT_EQ(count_wrong(array, 1), 0U);
  const uint64_t before = counted(Counter::kBytesWritten);
  ASSERT_EQ(count_wrong(array, 1), 0U);
  ASSERT_EQ(count_wrong(array, 1), 0U);
  // The last dirty blocks of the filling may still have gone out; three times that would be a bug.
  EXPECT_LE(counted(Counter::kBytesWritten) - before, kBudget);
  EXPECT_GE(counted(Counter::kBlocksDroppedClean), (kArray - kBudget) / arena::kBlockBytes);
}

TEST_P(EveryEngine, WhatIsInUseStays) {
  uint64_t* start = start_with_array(GetParam());
  fill(start, 1);
  volatile uint64_t* array = start;
  // Block 0 is used between all others, which come backwards, so that nothing is read ahead, and whole, so that no single
  // pages do.
  constexpr uint64_t kWords = arena::kBlockBytes / 8;
  ASSERT_EQ(array[5], expected(5, 1));
  arena::BlockWord& first = word_of(arena::block_of(reinterpret_cast<uintptr_t>(start) - partition().base));
  const uint64_t touched = counted(Counter::kFaultsProbation);
  constexpr uint64_t kRounds = 8;
  uint64_t rounds_left = 0;
  for (uint64_t round = 0; round < kRounds; ++round) {
    // In the first, what was filled is still being written, and the block may be part of that.
    const bool left = (first.fetch_and(~(arena::kOutOnce | arena::kOutTwice)) & (arena::kOutOnce | arena::kOutTwice)) != 0;
    rounds_left += round > 1 && left ? 1 : 0;
    for (uint64_t word = kArray / 8 - kWords; word > 0; word -= kWords) {
      for (uint64_t page = 0; page < arena::kBlockBytes; page += arena::kPageBytes) {
        array[word + page / 8] = expected(word + page / 8, 1);
      }
      ASSERT_EQ(array[5], expected(5, 1));
    }
  }
  EXPECT_GT(counted(Counter::kFaultsProbation), touched);
  EXPECT_LT(rounds_left, kRounds / 2);  // first in, first out takes it away once a round
}

TEST_P(EveryEngine, ZerosAreNotStored) {
  uint64_t* array = start_with_array(GetParam());
  memset(array, 0, kArray);
  uint64_t sum = 0;
  for (uint64_t index = 0; index < kArray / 8; ++index) {
    sum += array[index];
  }
  EXPECT_EQ(sum, 0U);
  EXPECT_EQ(counted(Counter::kBytesWritten), 0U);
  EXPECT_GE(counted(Counter::kBlocksZero), (kArray - kBudget) / arena::kBlockBytes);
}

TEST_P(EveryEngine, WhatIsOnlyReadBeforeItIsWrittenMovesNothing) {
  const uint64_t* array = start_with_array(GetParam());
  for (int round = 0; round < 2; ++round) {
    uint64_t sum = 0;
    for (uint64_t index = 0; index < kArray / 8; index += 8) {
      sum += array[index];
    }
    EXPECT_EQ(sum, 0U);
  }
  EXPECT_GE(counted(Counter::kBlocksZero), (kArray - kBudget) / arena::kBlockBytes);
  EXPECT_EQ(counted(Counter::kBytesWritten), 0U);
  EXPECT_EQ(counted(Counter::kBytesRead), 0U);
}

TEST_P(EveryEngine, ManyThreads) {
  uint64_t* array = start_with_array(GetParam());
  std::vector<std::thread> threads;
  std::atomic<uint64_t> wrong{0};
  constexpr uint64_t kThreads = 6;
  for (uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      const uint64_t first = kArray / 8 / kThreads * thread;
      uint64_t state = thread;
      std::vector<uint64_t> model(2048, 0);
      for (int step = 0; step < 6000; ++step) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        const uint64_t place = (state >> 33) % model.size();
        uint64_t& word = array[first + place * 700];
        wrong += word != model[place] ? 1 : 0;
        if (state >> 63 != 0) {
          word = model[place] = state;
        }
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong.load(), 0U);
}

/// Reads words of the first `pages` at random, each in a page of its own, and gives every second a new value; true if all were
/// right.
bool jump_about(uint64_t* array, std::vector<uint64_t>& rounds, int steps, uint64_t pages) {
  constexpr uint64_t kPageWords = arena::kPageBytes / 8;
  uint64_t random = 88172645463325252U;
  for (int step = 0; step < steps; ++step) {
    random = random * 6364136223846793005U + 1442695040888963407U;
    const uint64_t page = (random >> 33) % pages;
    uint64_t& word = array[page * kPageWords + page % kPageWords];
    if (word != expected(page * kPageWords + page % kPageWords, rounds[page])) {
      return false;
    }
    if (step % 2 == 0) {
      word = expected(page * kPageWords + page % kPageWords, ++rounds[page]);
    }
  }
  return true;
}

bool are_right(const uint64_t* array, const std::vector<uint64_t>& rounds) {
  constexpr uint64_t kPageWords = arena::kPageBytes / 8;
  for (uint64_t page = 0; page < rounds.size(); ++page) {
    if (array[page * kPageWords + page % kPageWords] != expected(page * kPageWords + page % kPageWords, rounds[page])) {
      return false;
    }
  }
  return true;
}

TEST_P(EveryEngine, RandomAccessMovesSinglePages) {
  uint64_t* array = start_with_array(GetParam());
  fill(array, 0);
  std::vector<uint64_t> rounds(kArray / arena::kPageBytes, 0);
  const uint64_t read = counted(Counter::kBytesRead);
  ASSERT_TRUE(jump_about(array, rounds, 6000, rounds.size()));
  if (engine() == base::EngineChoice::kSigsegv) {
    EXPECT_EQ(counted(Counter::kSinglePagesRead), 0U);
    return;
  }
  EXPECT_GT(counted(Counter::kSinglePagesRead), 1000U);
  EXPECT_GT(counted(Counter::kSinglePagesWritten), 100U);
  EXPECT_LT(counted(Counter::kBytesRead) - read, 6000 * arena::kBlockBytes / 5);
  EXPECT_TRUE(test::invariants_hold());

  // Whoever holds a range gets whole blocks, and what was written to single pages is in them.
  const uint64_t filled = counted(Counter::kBlocksFilled);
  constexpr uint64_t kPart = 512 << 10;
  for (uint64_t at = 0; at < kArray; at += kPart) {
    hold(array + at / 8, kPart, at % (2 * kPart) == 0);
    EXPECT_TRUE(test::invariants_hold());
    drop_hold(array + at / 8, kPart, at % (2 * kPart) == 0);
  }
  EXPECT_GT(counted(Counter::kBlocksFilled), filled);
  ASSERT_TRUE(jump_about(array, rounds, 6000, rounds.size()));

  // And so does who goes on in order; what is given up is zero.
  ASSERT_TRUE(are_right(array, rounds));
  ASSERT_TRUE(jump_about(array, rounds, 6000, rounds.size()));
  heap::zero(array, kArray / 2);
  for (uint64_t index = 0; index < kArray / 16; index += 61) {
    ASSERT_EQ(array[index], 0U);
  }
}

TEST_P(EveryEngine, WhatIsJumpedAboutInAndFitsIsReadWhole) {
  uint64_t* array = start_with_array(GetParam());
  fill(array, 0);
  std::vector<uint64_t> rounds(kArray / arena::kPageBytes, 0);
  constexpr uint64_t kPart = kBudget / 2 / arena::kPageBytes;
  // That it jumps about is seen by the time between faults; on a busy machine it can take several tries.
  for (int attempt = 0; attempt < 20 && counted(Counter::kBlocksReadWhole) < kPart / 64 / 2; ++attempt) {
    ASSERT_TRUE(are_right(array, rounds));  // the array's beginning is on storage then
    begin_turn();
    ASSERT_TRUE(jump_about(array, rounds, 60, rounds.size()));
    begin_turn();
    ASSERT_TRUE(jump_about(array, rounds, 6000, kPart));
    EXPECT_TRUE(test::invariants_hold());
  }
  if (engine() == base::EngineChoice::kSigsegv) {
    EXPECT_EQ(counted(Counter::kBlocksReadWhole), 0U);
    return;
  }
  EXPECT_GE(counted(Counter::kBlocksReadWhole), kPart / 64 / 2);
  EXPECT_TRUE(are_right(array, rounds));
}

TEST_P(EveryEngine, ManySmallWritesLeaveAPlaceForTheReadThatNeedsRoom) {
  uint64_t* array = start_with_array(GetParam());
  fill(array, 0);
  // Every second page changes, in no order: each block goes out in many small pieces.
  constexpr uint64_t kPageWords = arena::kPageBytes / 8;
  std::vector<uint64_t> rounds(kArray / arena::kPageBytes, 0);
  uint64_t random = 88172645463325252U;
  const int steps = engine() != base::EngineChoice::kSigsegv ? 12000 : 1000;  // that one moves a whole block for each
  for (int step = 0; step < steps; ++step) {
    random = random * 6364136223846793005U + 1442695040888963407U;
    const uint64_t page = (random >> 33) % rounds.size() / 2 * 2;
    array[page * kPageWords] = expected(page * kPageWords, ++rounds[page]);
  }
  // They make room for what is read in order, as many of them at a time as the store takes.
  const uint64_t written = counted(Counter::kSinglePagesWritten);
  for (uint64_t page = 0; page < rounds.size(); ++page) {
    ASSERT_EQ(array[page * kPageWords], expected(page * kPageWords, rounds[page]));
  }
  if (engine() != base::EngineChoice::kSigsegv) {
    EXPECT_GT(counted(Counter::kSinglePagesWritten), written);
  }
}

TEST_P(EveryEngine, AHeldRangeStays) {
  uint64_t* array = start_with_array(GetParam());
  fill(array, 5);
  const uint64_t bytes = 1 << 20;
  hold(array, bytes, false);
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(count_wrong(array, 5), 0U);
  }
  uint64_t offset = 0;
  ASSERT_TRUE(arena::find_offset(partition(), reinterpret_cast<uintptr_t>(array), offset));
  for (uint64_t block = offset / arena::kBlockBytes; block < (offset + bytes) / arena::kBlockBytes; ++block) {
    EXPECT_EQ(arena::state_of(partition().blocks[block].load()), uint64_t{arena::kResident}) << block;
  }
  drop_hold(array, bytes, false);
}

TEST_P(EveryEngine, DiscardedMemoryIsZero) {
  auto* array = reinterpret_cast<char*>(start_with_array(GetParam()));
  memset(array, 3, kArray);
  heap::zero(array + 1000, kArray - 2000);
  EXPECT_EQ(array[999], 3);
  for (uint64_t index = 1000; index < kArray - 1000; index += 509) {
    ASSERT_EQ(array[index], 0) << index;
  }
  EXPECT_EQ(array[kArray - 1000], 3);
}

INSTANTIATE_TEST_SUITE_P(Engines, EveryEngine, testing::Values("userfaultfd", "userfaultfd-user", "sigsegv"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::erase(name, '-');
                           return name;
                         });

/// Waits until no block is on its way out: a block counts as stored a moment before its memory is given back.
void wait_for_evictions() {
  const uint64_t blocks = partition().committed.load() / arena::kBlockBytes;
  for (bool some = true; some;) {
    some = false;
    for (uint64_t block = 0; block < blocks; ++block) {
      some = some || arena::state_of(partition().blocks[block].load()) == arena::kWriting;
    }
    EXPECT_TRUE(test::invariants_hold());  // and what the pager had begun is done
  }
}

TEST_P(EveryEngine, AHoleReadByAccidentStaysAHoleForTheProgram) {
  uint64_t* array = start_with_array(GetParam());
  fill(array, 3);
  wait_for_evictions();
  // Whoever reads a hole past the engine (a core dump, a peer) leaves a page of zeros there, and the kernel then calls the
  // program's next fault there another kind; the block's word alone says that its content is on storage.
  uint64_t stray = 0;
  uint64_t offset = 0;
  ASSERT_TRUE(arena::find_offset(partition(), reinterpret_cast<uintptr_t>(array), offset));
  for (uint64_t block = arena::block_of(offset); block < arena::block_of(offset + kArray); ++block) {
    if (arena::state_of(partition().blocks[block].load()) == arena::kStored) {
      const auto* alias = reinterpret_cast<const volatile uint64_t*>(partition().alias + block * arena::kBlockBytes);
      EXPECT_EQ(0U, alias[0]);
      ++stray;
    }
  }
  EXPECT_GT(stray, 100U);
  EXPECT_EQ(count_wrong(array, 3), 0U);
}

TEST_P(EveryEngine, MemoryDoesNotBecomeShortWhileStaticDataMoves) {
  test::set_environment("24M", GetParam(), "auto");
  ASSERT_EQ(start(), base::Status::kOk);
  constexpr uint64_t kBytes = 8 << 20;
  static uint64_t* data;
  data = static_cast<uint64_t*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  for (uint64_t index = 0; index < kBytes / 8; ++index) {
    data[index] = expected(index, 9);
  }
  uint64_t offset = 0;
  ASSERT_TRUE(heap::claim_for_static_data(kBytes, offset));
  static std::atomic<bool> fills{false};
  uint64_t* array = nullptr;
  std::thread other([&array] {
    while (!fills.load()) {
      std::this_thread::yield();
    }
    array = static_cast<uint64_t*>(heap::allocate(kArray, 1, false));
    fill(array, 1);
  });
  const auto copy = [](uintptr_t address, uint64_t bytes, uint64_t to) {
    for (uint64_t half = 0; half < bytes; half += bytes / 2) {
      EXPECT_EQ(
          pwrite(partition().descriptor, reinterpret_cast<void*>(address + half), bytes / 2, static_cast<off_t>(to + half)),
          static_cast<ssize_t>(bytes / 2));
      fills.store(true);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // time enough to evict everything
      EXPECT_FALSE(is_armed());
    }
    return true;
  };
  ASSERT_EQ(add_static_region(reinterpret_cast<uintptr_t>(data), kBytes, offset, copy), base::Status::kOk);
  other.join();
  EXPECT_TRUE(is_armed());
  ASSERT_EQ(count_wrong(array, 1), 0U);
  for (uint64_t index = 0; index < kBytes / 8; ++index) {
    ASSERT_EQ(data[index], expected(index, 9));
  }
  EXPECT_GE(counted(Counter::kBytesRead), kArray + kBytes - kBudget);
}

TEST(Pager, ContentSurvivesWithTheThreadStore) {
  uint64_t* array = start_with_array("auto", "threads");
  fill(array, 2);
  EXPECT_EQ(count_wrong(array, 2), 0U);
  EXPECT_EQ(static_cast<base::StoreChoice>(session().self->pager.store.load()), base::StoreChoice::kThreads);
}

TEST(Pager, NothingIsWatchedWhileMemoryIsEnough) {
  test::set_environment("256M", "auto");
  ASSERT_EQ(start(), base::Status::kOk);
  auto* array = static_cast<uint64_t*>(heap::allocate(kArray, 1, false));
  fill(array, 1);
  EXPECT_EQ(count_wrong(array, 1), 0U);
  EXPECT_FALSE(is_armed());
  EXPECT_EQ(counted(Counter::kFaults), 0U);
  EXPECT_EQ(counted(Counter::kBytesWritten), 0U);
}

TEST(Pager, WhatWasThereBeforeArmingCountsAsDirty) {
  test::set_environment("128M", "auto");  // the address sanitizer takes some 16 to 34 MiB of it
  ASSERT_EQ(start(), base::Status::kOk);
  auto* early = static_cast<char*>(heap::allocate(32 << 20, 1, false));
  memset(early, 9, 32 << 20);
  ASSERT_FALSE(is_armed());
  auto* late = static_cast<char*>(heap::allocate(128 << 20, 1, false));
  ASSERT_TRUE(is_armed());
  memset(late, 1, 128 << 20);
  for (uint64_t index = 0; index < (32 << 20); index += 777) {
    ASSERT_EQ(early[index], 9) << index;
  }
}

TEST(PagerDeathTest, AFailingWriteNamesCauseAndRemedy) {
  setenv("HEADROOM_STORE_FAULT", "write:EROFS:3", 1);
  EXPECT_EXIT(
      {
        uint64_t* array = start_with_array("auto");
        fill(array, 1);
        _exit(0);
      },
      testing::ExitedWithCode(2), "storage in /var/tmp failed: Read-only file system.*--storage");
}

TEST(PagerDeathTest, AFailingReadNamesCauseAndRemedy) {
  setenv("HEADROOM_STORE_FAULT", "read:EIO:2", 1);
  EXPECT_EXIT(
      {
        uint64_t* array = start_with_array("auto");
        fill(array, 1);
        _exit(count_wrong(array, 1) == 0 ? 0 : 1);
      },
      testing::ExitedWithCode(2), "storage in /var/tmp failed: Input/output error.*run ends");
}

TEST(PagerDeathTest, EveryTransferMayFail) {
  for (int nth = 1; nth <= 40; nth += 3) {
    setenv("HEADROOM_STORE_FAULT", ("write:EIO:" + std::to_string(nth)).c_str(), 1);
    EXPECT_EXIT(
        {
          uint64_t* array = start_with_array("auto");
          fill(array, 1);
          _exit(0);
        },
        testing::ExitedWithCode(2), "failed: Input/output error")
        << nth;
  }
}

}  // namespace
}  // namespace headroom::pager
