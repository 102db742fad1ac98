// A rank that is killed at some instruction of what it does in windows: while it has a lock, in the middle of folding, between
// posting and completing. The other one sees whole content and loses nothing of its own, and goes on, or ends with an error
// that names the dead one where it needs what that one had.
#if defined(__x86_64__)
#include <algorithm>
#include <vector>

#include "killed_ranks.h"

namespace headroom::direct {
namespace {

using test::Rank;

constexpr int kParts = 8;
constexpr int kBefore = 6;  // rounds of the victim in which it is not killed
constexpr int kAfter = 8;   // of the other one, when the victim has ended

constexpr uint64_t kWordBytes = sizeof(uint64_t);
constexpr uint64_t kShort = 6;  // words that are used at once
constexpr uint64_t kLong = 300;
constexpr uint64_t kPartBytes = 512 << 10;
constexpr uint64_t kBallastBytes = 12 << 20;

void expect(bool right) {
  if (!right) {
    _exit(test::kWrong);
  }
}

bool is_uniform(const std::vector<uint64_t>& words) {
  return std::count(words.begin(), words.end(), words[0]) == static_cast<int64_t>(words.size());
}

Content content_of(std::vector<uint64_t>& words) {
  return {reinterpret_cast<char*>(words.data()), words.size() * kWordBytes, nullptr};
}

/// A rank, and the part of a window that each has.
class Accessing {
 public:
  Accessing(Rank& rank, int victim, bool is_short) : rank_(rank), is_victim_(rank.self() == victim) {
    words_ = reinterpret_cast<uint64_t*>(rank.make_window(kPartBytes));
    ballast_ = is_short ? Rank::allocate(kBallastBytes) : nullptr;
    drive_out();
    rank.meet();
  }

  /// The victim does some rounds, and is stepped in some of them. The other one goes on until it has ended, and does some more.
  template <typename Round>
  void do_rounds(Round round) {
    int number = 0;
    if (is_victim_) {
      for (; number < kBefore; ++number) {
        round(number);
      }
      for (; number < kBefore + kParts; ++number) {
        part_ = number - kBefore;
        round(number);
      }
      rank_.count_done();
      return;
    }
    for (; rank_.done() == 0 && !Rank::is_lost(); ++number) {
      round(number);
      drive_out();
      usleep(50);
    }
    for (const int end = number + kAfter; number < end; ++number) {
      round(number);
    }
  }

 protected:
  /// Memory is short, and what is not used at the moment has to leave.
  void drive_out() {
    for (uint64_t at = 0; ballast_ != nullptr && at < kBallastBytes; at += arena::kPageBytes) {
      ++ballast_[at];
    }
  }
  [[nodiscard]] Content place_in(int rank, uint64_t first, uint64_t count) const {
    return rank_.place_in(rank, first * kWordBytes, count * kWordBytes);
  }

  /// Around what the victim may be killed in.
  void begin_part() const {
    if (part_ >= 0) {
      test::begin_part(part_);
    }
  }
  void end_part() const {
    if (part_ >= 0) {
      test::end_part(part_);
    }
  }

  Rank& rank_;
  bool is_victim_;
  int part_ = -1;  // of the victim
  uint64_t* words_;
  char* ballast_;
};

/// Content that is alike, and is replaced under a lock.
class Filling : public Accessing {
 public:
  using Accessing::Accessing;

  void one_round(int number) {
    const int target = number % 2;
    const bool alone = number % 3 != 2;
    const bool is_long = number / 2 % 2 != 0;
    WindowControl& control = rank_.control(target);
    std::vector<uint64_t> words(is_long ? kLong : kShort);
    const Content there = place_in(target, is_long ? kShort : 0, words.size());
    begin_part();
    Rank::wait_until([&] { return lock_or_mark(control, alone, pager::session().index); });
    get(endpoint(), rank_.part(target), there, content_of(words));
    expect(is_victim_ || is_uniform(words));
    if (alone) {
      std::fill(words.begin(), words.end(), words[0] + 1);
      put(endpoint(), rank_.part(target), there, content_of(words));
    }
    unlock(endpoint(), control, alone);
    end_part();
  }
};

void add_words(const Fold&, const void* from, void* into, uint64_t count) {
  for (uint64_t at = 0; at < count; ++at) {
    static_cast<uint64_t*>(into)[at] += static_cast<const uint64_t*>(from)[at];
  }
}
constexpr Fold kSum = {Fold::What::kCombine, kWordBytes, kWordBytes, nullptr, add_words};

/// Sums: of the victim's in the upper half of each word, and of the other one's in the lower.
class Summing : public Accessing {
 public:
  using Accessing::Accessing;

  void one_round(int number) {
    const int target = number % 2;
    const bool is_long = number / 2 % 2 != 0;
    const bool fetches = number / 4 % 2 != 0;
    std::vector<uint64_t> terms(is_long ? kLong : kShort, is_victim_ ? kUpper : 1);
    std::vector<uint64_t> before(terms.size());
    const Content from = content_of(terms);
    const Content into = content_of(before);
    begin_part();
    fold(endpoint(), rank_.part(target), place_in(target, is_long ? kShort : 0, terms.size()), &from, fetches ? &into : nullptr,
         kSum);
    end_part();
    if (fetches) {
      check(before, target, is_long);
    }
    ++made_[target][is_long ? 1 : 0];
  }

  void check_all() const {
    for (const int target : {0, 1}) {
      for (const bool is_long : {false, true}) {
        std::vector<uint64_t> words(is_long ? kLong : kShort);
        get(endpoint(), rank_.part(target), place_in(target, is_long ? kShort : 0, words.size()), content_of(words));
        check(words, target, is_long);
        expect(is_long || is_uniform(words));
      }
    }
  }

 private:
  static constexpr uint64_t kUpper = uint64_t{1} << 32;

  /// What this rank has summed up is there, no more and no less.
  void check(const std::vector<uint64_t>& words, int target, bool is_long) const {
    for (const uint64_t word : words) {
      expect((is_victim_ ? word / kUpper : word % kUpper) == made_[target][is_long ? 1 : 0]);
    }
  }

  uint64_t made_[2][2] = {};  // by target and length
};

/// Each exposes its part to the other, reads what is there, and puts something else.
class Exposing : public Accessing {
 public:
  using Accessing::Accessing;

  void do_rounds() {
    for (uint32_t number = 0; number < kBefore + kParts; ++number) {
      part_ = is_victim_ && number >= kBefore ? static_cast<int>(number) - kBefore : -1;
      one_round(number);
    }
  }

 private:
  static uint64_t value(int from, uint32_t number) { return number * 2 + static_cast<uint64_t>(from) + 1; }

  void one_round(uint32_t number) {
    const int self = rank_.self();
    const int other = 1 - self;
    std::vector<uint64_t> words(number % 2 == 0 ? kShort : kLong);
    std::fill(words_, words_ + words.size(), value(self, number));
    begin_part();
    count_posted(rank_.control(other), self);
    endpoint().wake(rank_.member(other));

    Rank::wait_until([&] { return was_posted(rank_.control(self), other, number); });
    const Content there = place_in(other, 0, words.size());
    get(endpoint(), rank_.part(other), there, content_of(words));
    expect(is_victim_ || (is_uniform(words) && words[0] == value(other, number)));
    std::fill(words.begin(), words.end(), value(self, number));
    put(endpoint(), rank_.part(other), there, content_of(words));
    count_completed(rank_.control(other), self);
    endpoint().wake(rank_.member(other));

    Rank::wait_until([&] { return was_completed(rank_.control(self), other, number); });
    end_part();
    expect(std::count(words_, words_ + words.size(), value(other, number)) == static_cast<int64_t>(words.size()));
  }
};

using KilledAnywhereInEpochs = test::KilledRanks;

TEST_F(KilledAnywhereInEpochs, WhoWaitsLearnsOfIt) {
  kill_at_moments(0, "1G", kParts, [](Rank& rank) { Exposing(rank, 0, false).do_rounds(); });
  EXPECT_GT(ends_seen[test::kEndedByHeadroom], 0);
}

struct Scenario {
  const char* name;
  const char* memory;
  int victim;
  bool is_short;
};
void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

class KilledAnywhereInWindows : public test::KilledRanks, public ::testing::WithParamInterface<Scenario> {
 protected:
  template <typename Work>
  void kill_at_moments(Work work) {
    KilledRanks::kill_at_moments(GetParam().victim, GetParam().memory, kParts, work);
  }
  template <typename Kind>
  static Kind begin(Rank& rank) {
    return Kind(rank, GetParam().victim, GetParam().is_short);
  }
};

TEST_P(KilledAnywhereInWindows, WhatIsWrittenUnderALockIsSeenWholeOrNotAtAll) {
  kill_at_moments([](Rank& rank) {
    auto filling = begin<Filling>(rank);
    filling.do_rounds([&](int number) { filling.one_round(number); });
  });
  EXPECT_GT(ends_seen[0], 0);
  EXPECT_GT(ends_seen[test::kEndedByHeadroom], 0);
}

TEST_P(KilledAnywhereInWindows, NoSumOfTheOtherOneIsLost) {
  kill_at_moments([](Rank& rank) {
    auto summing = begin<Summing>(rank);
    summing.do_rounds([&](int number) { summing.one_round(number); });
    summing.check_all();
  });
  EXPECT_GT(ends_seen[0], 0);
  EXPECT_GT(ends_seen[test::kEndedByHeadroom], 0);
}

INSTANTIATE_TEST_SUITE_P(Nodes, KilledAnywhereInWindows,
                         ::testing::Values(Scenario{"Ample", "1G", 0, false}, Scenario{"Short", "24M", 1, true}),
                         [](const auto& scenario) { return std::string(scenario.param.name); });

}  // namespace
}  // namespace headroom::direct
#endif
