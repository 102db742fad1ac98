// The locks, counters and folds of windows, between threads: what they protect is plain memory, so that the thread sanitizer
// tells whether their memory order does. (Between processes, in memory that leaves: window_ranks_test.cc.)
#include "direct/window.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "direct/peer_memory.h"
#include "endpoint_fixture.h"
#include "pager/pager.h"
#include "seed.h"

namespace headroom::direct {
namespace {

constexpr int kThreads = 4;

class Windows : public Endpoints {
 protected:
  static constexpr int kRanks = 3;
  static constexpr uint64_t kWords = 4096;

  void SetUp() override {
    Endpoints::SetUp();
    // Folds are this process's as member 0, whose memory nobody watches; so any memory may be its part.
    pager::session() = sessions[0];
    table = memfd_create("blocks", 0);
    ASSERT_EQ(0, ftruncate(table, arena::kPageBytes));
    ledger->members[0].partition.table_descriptor.store(table);
    ledger->members[0].partition.table_inode.store(arena::inode_of(table));
    for (WindowPart& part : parts) {
      part = make_window_part(*ends[0], nullptr, 0, 1, kRanks);
      ASSERT_TRUE(open_window_part(part));
    }
    words.resize(kWords);
    parts[0].address = reinterpret_cast<char*>(words.data());
    parts[0].bytes = kWords * sizeof(uint64_t);
  }
  void TearDown() override {
    for (const WindowPart& part : parts) {
      drop_window_part(*ends[0], part, kRanks);
    }
    pager::session() = {};
    close(table);
    Endpoints::TearDown();
  }

  WindowControl& control(int rank) { return *ends[0]->memory().at<WindowControl>(parts[rank].control); }

  /// As a rank waits that sleeps (waiting.cc), but for so long that a ring that does not come is noticed.
  void lock(WindowControl& control, bool exclusive, int member) {
    constexpr uint64_t kLongNs = 5'000'000'000;
    Root& root = ends[member]->own_root();
    for (;;) {
      const uint32_t bell = root.bell.load(std::memory_order_acquire);
      root.sleeping.store(1, std::memory_order_relaxed);
      if (lock_or_mark(control, exclusive, member)) {
        return;
      }
      const uint64_t began = base::monotonic_ns();
      base::futex_wait(&root.bell, bell, kLongNs, true);
      if (base::monotonic_ns() - began >= kLongNs) {
        forgotten.store(true);
      }
    }
  }

  template <typename Work>
  static void run_in_threads(int count, Work work) {
    std::atomic<int> ready = 0;
    std::vector<std::thread> threads;
    threads.reserve(static_cast<size_t>(count));
    for (int index = 0; index < count; ++index) {
      threads.emplace_back([&, index] {
        for (++ready; ready.load(std::memory_order_relaxed) < count;) {
          sched_yield();
        }
        work(index);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

  int table = -1;
  WindowPart parts[kRanks] = {};
  std::vector<uint64_t> words;  // of part 0
  std::atomic<bool> forgotten = false;
};

TEST_F(Windows, ALockIsSharedOrHeldAlone) {
  WindowControl& here = control(0);
  EXPECT_TRUE(try_lock(here, false));
  EXPECT_TRUE(try_lock(here, false));
  EXPECT_FALSE(try_lock(here, true));
  unlock(*ends[0], here, false);
  EXPECT_FALSE(lock_or_mark(here, true, 1));
  unlock(*ends[0], here, false);
  EXPECT_TRUE(try_lock(here, true));
  EXPECT_FALSE(try_lock(here, false));
  EXPECT_FALSE(try_lock(here, true));
  EXPECT_TRUE(try_lock(control(1), true));
  unlock(*ends[0], here, true);
  EXPECT_TRUE(try_lock(here, false));
}

TEST_F(Windows, WhoWaitsForALockIsRungOnce) {
  WindowControl& here = control(0);
  for (const auto& end : ends) {
    end->own_root().sleeping.store(1);
  }
  ASSERT_TRUE(lock_or_mark(here, true, 0));
  ASSERT_FALSE(lock_or_mark(here, false, 1));
  unlock(*ends[0], here, true);
  EXPECT_EQ(0U, ends[0]->own_root().bell.load());
  EXPECT_EQ(1U, ends[1]->own_root().bell.load());
  ends[1]->own_root().sleeping.store(1);
  ASSERT_TRUE(try_lock(here, false));
  unlock(*ends[0], here, false);
  EXPECT_EQ(1U, ends[1]->own_root().bell.load());
}

TEST_F(Windows, ALockProtectsWhatIsWrittenUnderIt) {
  constexpr int kRounds = 10'000;
  uint64_t written[kThreads] = {};
  std::atomic<bool> torn = false;
  run_in_threads(kThreads, [&](int thread) {
    std::mt19937 random(headroom::test::seed_of(thread));
    const int member = thread % 2;
    for (int round = 0; round < kRounds; ++round) {
      const bool alone = random() % 3 == 0;
      lock(control(0), alone, member);
      for (size_t at = 0; at < 16; ++at) {
        if (alone) {
          ++words[at];
        }
        if (words[at] != words[0]) {
          torn.store(true, std::memory_order_relaxed);
        }
        if (random() % 64 == 0) {
          sched_yield();
        }
      }
      written[thread] += alone ? 1 : 0;
      unlock(*ends[member], control(0), alone);
    }
  });
  EXPECT_FALSE(torn.load());
  EXPECT_FALSE(forgotten.load());
  EXPECT_EQ(std::accumulate(written, written + kThreads, uint64_t{0}), words[0]);
  EXPECT_EQ(0U, control(0).lock.load());
}

// Each thread is a rank, whose part others access as often as a rule says that all of them know.
TEST_F(Windows, EpochsPassOnWhatWasWritten) {
  constexpr uint64_t kRounds = 10'000;
  const auto accesses = [](int origin, int target, uint64_t round) {
    return origin != target && (round * 2654435761U + static_cast<uint64_t>(origin * 3 + target) * 40503U) / 64 % 3 != 0;
  };
  const auto value = [](int from, int to, uint64_t round) { return round * 100 + static_cast<uint64_t>(from * 10 + to); };
  const auto wait_until = [](auto done) {
    while (!done()) {
      sched_yield();
    }
  };
  uint64_t cells[kRanks][kRanks] = {};  // by target and origin
  std::atomic<int> wrong = 0;
  run_in_threads(kRanks, [&](int self) {
    uint32_t used[kRanks] = {};
    uint32_t concluded[kRanks] = {};
    for (uint64_t round = 1; round <= kRounds; ++round) {
      for (int origin = 0; origin < kRanks; ++origin) {
        if (accesses(origin, self, round)) {
          cells[self][origin] = value(self, origin, round);
          count_posted(control(origin), self);
        }
      }
      for (int target = 0; target < kRanks; ++target) {
        if (accesses(self, target, round)) {
          wait_until([&] { return was_posted(control(self), target, used[target]); });
          ++used[target];
          wrong += cells[target][self] != value(target, self, round) ? 1 : 0;
          cells[target][self] = value(self, target, round);
          count_completed(control(target), self);
        }
      }
      for (int origin = 0; origin < kRanks; ++origin) {
        if (accesses(origin, self, round)) {
          wait_until([&] { return was_completed(control(self), origin, concluded[origin]); });
          ++concluded[origin];
          wrong += cells[self][origin] != value(origin, self, round) ? 1 : 0;
        }
      }
    }
  });
  EXPECT_EQ(0, wrong.load());
}

void add_words(const Fold& how, const void* from, void* into, uint64_t count) {
  for (uint64_t at = 0; at < count * how.packed_bytes / sizeof(uint64_t); ++at) {
    static_cast<uint64_t*>(into)[at] += static_cast<const uint64_t*>(from)[at];
  }
}

constexpr Fold kSum = {Fold::What::kCombine, sizeof(uint64_t), sizeof(uint64_t), nullptr, add_words};
constexpr Fold kSwap = {Fold::What::kReplace, sizeof(uint64_t), sizeof(uint64_t), nullptr, nullptr};
// Elements of two words, which are always equal.
constexpr Fold kSumOfPair = {Fold::What::kCombine, 2 * sizeof(uint64_t), 2 * sizeof(uint64_t), nullptr, add_words};
constexpr Fold kReadPair = {Fold::What::kNothing, 2 * sizeof(uint64_t), 2 * sizeof(uint64_t), nullptr, nullptr};

Content content_of(uint64_t* begin, uint64_t count, const Layout* layout = nullptr) {
  return {reinterpret_cast<char*>(begin), count * sizeof(uint64_t), layout};
}

TEST_F(Windows, NoSumIsLost) {
  constexpr int kRounds = 5000;
  LayoutBuilder every_other;
  every_other.add(0, sizeof(uint64_t), 1, 0);
  Layout* const layout = every_other.finish(ends[0]->memory(), 2 * sizeof(uint64_t));
  std::vector<uint64_t> expected[kThreads];
  run_in_threads(kThreads, [&](int thread) {
    std::mt19937 random(headroom::test::seed_of(thread));
    std::vector<uint64_t> operands(kWords, 1);
    std::vector<uint64_t> fetched(kWords);
    expected[thread].resize(kWords);
    for (int round = 0; round < kRounds; ++round) {
      const bool fetches = random() % 3 == 0;
      const uint64_t step = random() % 4 == 0 ? 2 : 1;
      const uint64_t most = (random() % 20 == 0 ? kWords : random() % 2 == 0 ? 8 : 600) / step;
      const uint64_t count = 1 + random() % most;
      const uint64_t first = random() % (kWords - (count - 1) * step);
      const Content from = content_of(operands.data(), count);
      const Content before = content_of(fetched.data(), count);
      fold(*ends[0], parts[0], content_of(&words[first], count, step == 2 ? layout : nullptr), &from,
           fetches ? &before : nullptr, kSum);
      for (uint64_t at = 0; at < count; ++at) {
        ++expected[thread][first + at * step];
      }
    }
  });
  for (uint64_t at = 0; at < kWords; ++at) {
    uint64_t sum = 0;
    for (const auto& each : expected) {
      sum += each[at];
    }
    ASSERT_EQ(sum, words[at]) << at;
  }
  EXPECT_EQ(0U, control(0).folding.load());
  EXPECT_EQ(0U, open_peer_blocks(sessions[0], 0)[0].load());  // nothing is held any more
  let_go(layout, ends[0]->memory());
  every_other.drop();
}

TEST_F(Windows, AnElementIsFetchedAsItWasOnce) {
  constexpr uint64_t kRounds = 10'000;
  std::vector<uint64_t> counted[kThreads];  // what was there before one was added
  std::vector<uint64_t> swapped[kThreads];  // what was there before a number of one's own
  std::atomic<int> torn = 0;
  run_in_threads(kThreads, [&](int thread) {
    std::mt19937 random(headroom::test::seed_of(thread));
    for (uint64_t round = 0; round < kRounds; ++round) {
      uint64_t one[2] = {1, 1};
      uint64_t number = round * kThreads + static_cast<uint64_t>(thread) + 1;
      uint64_t before[2] = {};
      const Content operand = content_of(one, 1);
      const Content own = content_of(&number, 1);
      const Content both = content_of(one, 2);
      const Content word = content_of(before, 1);
      const Content pair = content_of(before, 2);
      fold(*ends[0], parts[0], content_of(&words[0], 1), &operand, &word, kSum);
      counted[thread].push_back(before[0]);
      fold(*ends[0], parts[0], content_of(&words[1], 1), &own, &word, kSwap);
      swapped[thread].push_back(before[0]);
      fold(*ends[0], parts[0], content_of(&words[2], 2), &both, nullptr, kSumOfPair);
      fold(*ends[0], parts[0], content_of(&words[2], 2), nullptr, &pair, kReadPair);
      torn += before[0] != before[1] ? 1 : 0;
    }
  });
  EXPECT_EQ(0, torn.load());
  EXPECT_EQ(kRounds * kThreads, words[3]);
  swapped[0].push_back(words[1]);
  std::vector<uint64_t> expected(kRounds * kThreads + 1);
  std::iota(expected.begin(), expected.end(), 0);
  counted[0].push_back(words[0]);
  for (auto* seen : {counted, swapped}) {
    for (int thread = 1; thread < kThreads; ++thread) {
      seen[0].insert(seen[0].end(), seen[thread].begin(), seen[thread].end());
    }
    std::sort(seen[0].begin(), seen[0].end());
    EXPECT_EQ(expected, seen[0]);
  }
}

struct Gapped {
  uint64_t word;
  uint32_t half;
  uint32_t gap;  // is left as it is
};

void add_gapped(const Fold&, const void* from, void* into, uint64_t count) {
  for (uint64_t at = 0; at < count; ++at) {
    static_cast<Gapped*>(into)[at].word += static_cast<const Gapped*>(from)[at].word;
    static_cast<Gapped*>(into)[at].half += static_cast<const Gapped*>(from)[at].half;
  }
}

TEST_F(Windows, ElementsWithGapsAreFoldedWhole) {
  constexpr int kRounds = 500;
  constexpr uint64_t kElements = 300;
  constexpr uint64_t kPacked = sizeof(uint64_t) + sizeof(uint32_t);
  LayoutBuilder runs;
  runs.add(0, kPacked, 1, 0);
  Layout* const layout = runs.finish(ends[0]->memory(), sizeof(Gapped));
  const Fold sum = {Fold::What::kCombine, kPacked, sizeof(Gapped), layout, add_gapped};
  const Fold read = {Fold::What::kNothing, kPacked, sizeof(Gapped), layout, nullptr};
  auto* const elements = reinterpret_cast<Gapped*>(words.data());
  for (uint64_t at = 0; at < kElements; ++at) {
    elements[at].gap = static_cast<uint32_t>(at);
  }
  std::atomic<int> torn = 0;
  run_in_threads(kThreads, [&](int) {
    std::vector<Gapped> operands(kElements, {1, 1, 99});
    std::vector<Gapped> before(kElements, {0, 0, 98});
    const Content there = {reinterpret_cast<char*>(elements), kElements * kPacked, layout};
    const Content from = {reinterpret_cast<char*>(operands.data()), kElements * kPacked, layout};
    const Content fetched = {reinterpret_cast<char*>(before.data()), kElements * kPacked, layout};
    for (int round = 0; round < kRounds; ++round) {
      fold(*ends[0], parts[0], there, &from, nullptr, sum);
      fold(*ends[0], parts[0], there, nullptr, &fetched, read);
      for (const Gapped& each : before) {
        torn += each.word != each.half || each.gap != 98 ? 1 : 0;
      }
    }
  });
  EXPECT_EQ(0, torn.load());
  for (uint64_t at = 0; at < kElements; ++at) {
    ASSERT_EQ(uint64_t{kThreads * kRounds}, elements[at].word) << at;
    ASSERT_EQ(uint32_t{kThreads * kRounds}, elements[at].half) << at;
    ASSERT_EQ(at, elements[at].gap);
  }
  let_go(layout, ends[0]->memory());
  runs.drop();
}

TEST_F(Windows, APartOutsideEvictableMemoryCannotBeDirect) {
  const WindowPart part = make_window_part(*ends[0], words.data(), kWords, 1, kRanks);
  EXPECT_EQ(0U, part.control);
  EXPECT_FALSE(open_window_part(part));
}

}  // namespace
}  // namespace headroom::direct
