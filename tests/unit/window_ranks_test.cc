// Windows between processes, in memory that leaves: locks, puts, gets and sums at random.
#include <algorithm>
#include <random>
#include <vector>

#include "ranks.h"
#include "seed.h"
#include "trace/counters.h"

namespace headroom::direct {
namespace {

using test::Rank;
using trace::Counter;

class WindowsOfRanks : public test::Ranks {};

// The beginning of a part is summed up, the rest is filled with one word whenever it is locked.
constexpr uint64_t kSummedWords = (6 << 20) / sizeof(uint64_t);
constexpr uint64_t kFilledWords = (2 << 20) / sizeof(uint64_t);
constexpr uint64_t kPartBytes = (kSummedWords + kFilledWords) * sizeof(uint64_t);
constexpr int kRounds = 150;

struct Sum {
  int target;
  uint64_t first;
  uint64_t count;
};

void add_words(const Fold&, const void* from, void* into, uint64_t count) {
  for (uint64_t at = 0; at < count; ++at) {
    static_cast<uint64_t*>(into)[at] += static_cast<const uint64_t*>(from)[at];
  }
}
constexpr Fold kAdd = {Fold::What::kCombine, sizeof(uint64_t), sizeof(uint64_t), nullptr, add_words};

class RandomWork {
 public:
  explicit RandomWork(Rank& rank) : rank_(rank), random_(static_cast<uint32_t>(rank.self())) {
    ones_ = reinterpret_cast<uint64_t*>(Rank::allocate(kSummedWords * sizeof(uint64_t)));
    buffer_ = reinterpret_cast<uint64_t*>(Rank::allocate(kSummedWords * sizeof(uint64_t)));
    std::fill(ones_, ones_ + kSummedWords, 1);
  }

  void run() {
    std::vector<Sum> made = sums_of(rank_.self());
    for (size_t at = 0; at < made.size(); ++at) {
      add(made[at]);
      use_lock(static_cast<int>(random_() % static_cast<unsigned>(rank_.count())), random_() % 2 == 0);
    }
    rank_.meet();
    check_sums();
  }

 private:
  /// What a rank adds up: known to all.
  [[nodiscard]] std::vector<Sum> sums_of(int rank) const {
    std::mt19937 random(headroom::test::seed_of(100 + rank));
    std::vector<Sum> sums;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t most = round % 3 == 0 ? 8 : round % 10 == 1 ? kSummedWords : 40'000;
      const uint64_t count = 1 + random() % most;
      sums.push_back(
          {static_cast<int>(random() % static_cast<unsigned>(rank_.count())), random() % (kSummedWords - count + 1), count});
    }
    return sums;
  }

  void add(const Sum& sum) {
    const uint64_t bytes = sum.count * sizeof(uint64_t);
    const Content there = rank_.place_in(sum.target, sum.first * sizeof(uint64_t), bytes);
    const Content from = {reinterpret_cast<char*>(ones_), bytes, nullptr};
    const Content before = {reinterpret_cast<char*>(buffer_), bytes, nullptr};
    fold(endpoint(), rank_.part(sum.target), there, &from, random_() % 4 == 0 ? &before : nullptr, kAdd);
  }

  void use_lock(int target, bool alone) {
    WindowControl& control = rank_.control(target);
    Rank::wait_until([&] { return lock_or_mark(control, alone, pager::session().index); });
    const Content there = rank_.place_in(target, kSummedWords * sizeof(uint64_t), kFilledWords * sizeof(uint64_t));
    const Content here = {reinterpret_cast<char*>(buffer_), there.bytes, nullptr};
    get(endpoint(), rank_.part(target), there, here);
    if (std::count(buffer_, buffer_ + kFilledWords, buffer_[0]) != static_cast<int64_t>(kFilledWords)) {
      _exit(test::kWrong);
    }
    if (alone) {
      std::fill(buffer_, buffer_ + kFilledWords, random_());
      put(endpoint(), rank_.part(target), there, here);
    }
    unlock(endpoint(), control, alone);
  }

  /// Each looks at its own part, as its program would.
  void check_sums() {
    std::vector<std::pair<uint64_t, int>> changes = {{kSummedWords, 0}};
    for (int rank = 0; rank < rank_.count(); ++rank) {
      for (const Sum& sum : sums_of(rank)) {
        if (sum.target == rank_.self()) {
          changes.emplace_back(sum.first, 1);
          changes.emplace_back(sum.first + sum.count, -1);
        }
      }
    }
    std::sort(changes.begin(), changes.end());
    const auto* words = reinterpret_cast<const uint64_t*>(rank_.part(rank_.self()).address);
    uint64_t expected = 0;
    uint64_t at = 0;
    for (const auto& [where, change] : changes) {
      for (; at < where; ++at) {
        if (words[at] != expected) {
          _exit(test::kWrong);
        }
      }
      expected += static_cast<uint64_t>(change);
    }
  }

  Rank& rank_;
  std::mt19937 random_;
  uint64_t* ones_;
  uint64_t* buffer_;
};

struct Node {
  const char* name;
  const char* memory;
  const char* mode;
};
void PrintTo(const Node& node, std::ostream* out) { *out << node.name; }

class WindowsOfRanksOn : public WindowsOfRanks, public ::testing::WithParamInterface<Node> {};

TEST_P(WindowsOfRanksOn, NothingIsLostOrTorn) {
  const bool is_short = std::string(GetParam().name) == "Short";
  start(3, GetParam().memory, GetParam().mode, [&](Rank& rank) {
    (void)rank.make_window(kPartBytes);
    RandomWork(rank).run();
    const bool asked = trace::counted(Counter::kPeersAskedForBlocks) > 0;
    if (asked != is_short) {
      _exit(test::kCannotBegin);
    }
  });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(0, end_of(rank)) << said();
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, WindowsOfRanksOn,
                         ::testing::Values(Node{"Ample", "1G", "pass"}, Node{"Sleeping", "1G", "turns"},
                                           Node{"Short", "48M", "auto"}),
                         [](const auto& node) { return std::string(node.param.name); });

TEST_F(WindowsOfRanks, EverybodyWhoWaitsForALockIsRung) {
  start(1, "1G", "auto", [](Rank& rank) {
    (void)rank.make_window(arena::kPageBytes);
    WindowControl& control = rank.control(0);
    const int waiting[] = {1, 63, 64, 130, node::kFewestPlaces - 1};
    for (int member = 0; member < node::kFewestPlaces; ++member) {
      endpoint().root_of(member).sleeping.store(1);
    }
    (void)try_lock(control, true);
    for (const int member : waiting) {
      (void)lock_or_mark(control, false, member);
    }
    unlock(endpoint(), control, true);
    for (int member = 0; member < node::kFewestPlaces; ++member) {
      const bool waits = std::find(std::begin(waiting), std::end(waiting), member) != std::end(waiting);
      if (endpoint().root_of(member).bell.load() != (waits ? 1U : 0U)) {
        _exit(test::kWrong);
      }
    }
  });
  EXPECT_EQ(0, end_of(0));
}

}  // namespace
}  // namespace headroom::direct
