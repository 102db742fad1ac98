// A rank that is killed at some instruction of its pager, which takes the rank's part of a window away and brings it back for
// the other one, who alone writes there: that one reads what it has put, or ends with an error that names the dead one.
#if defined(__x86_64__)
#include <algorithm>
#include <vector>

#include "killed_ranks.h"

namespace headroom::direct {
namespace {

using test::Rank;

constexpr int kVictim = 1;
constexpr uint64_t kBlocks = 4;
constexpr uint64_t kWords = 2000;  // of each block that are used
constexpr uint64_t kBallastBytes = 14 << 20;
constexpr long kSteps = 15'000;  // of the pager
constexpr long kBeginnings = 8;  // after so many of what others ask it for

/// Called on the pager's thread when others ask for something.
void step_pager() {
  static long asked = 0;
  if (asked++ == (test::steps->killed_at.load() & (kBeginnings - 1))) {
    sigset_t trap = {};
    sigaddset(&trap, SIGTRAP);
    pthread_sigmask(SIG_UNBLOCK, &trap, nullptr);
    test::begin_part(0);
  }
}

/// The victim does nothing but have its memory leave.
void page(Rank& rank, const char* part, char* ballast) {
  test::steps->last = kSteps;
  pager::call_when_changed(step_pager);
  for (uint64_t at = 0; test::steps->taken.load() < kSteps; at = (at + arena::kBlockBytes) % kBallastBytes) {
    pager::will_not_need(part, kBlocks * arena::kBlockBytes);
    ++ballast[at];
    usleep(500);
  }
  test::end_part(0);
  rank.count_done();
}

void put_and_get(const Rank& rank, uint64_t number, uint64_t (&last)[kBlocks]) {
  std::vector<uint64_t> words(kWords);
  const uint64_t block = number % kBlocks;
  const Content here = {reinterpret_cast<char*>(words.data()), kWords * sizeof(uint64_t), nullptr};
  const Content there = rank.place_in(kVictim, block * arena::kBlockBytes, here.bytes);
  get(endpoint(), rank.part(kVictim), there, here);
  if (std::count(words.begin(), words.end(), last[block]) != static_cast<int64_t>(kWords)) {
    _exit(test::kWrong);
  }
  last[block] = number + 1;
  std::fill(words.begin(), words.end(), last[block]);
  put(endpoint(), rank.part(kVictim), there, here);
}

using KilledAnywhereInPager = test::KilledRanks;

TEST_F(KilledAnywhereInPager, WhatTheOtherOneHasPutIsThereOrItLearnsOfIt) {
  kill_at_moments(kVictim, "24M", 1, [](Rank& rank) {
    const char* part = rank.make_window(kBlocks * arena::kBlockBytes);
    char* const ballast = Rank::allocate(kBallastBytes);
    for (int round = 0; round < 2; ++round) {
      for (uint64_t at = 0; at < kBallastBytes; at += arena::kPageBytes) {
        ++ballast[at];
      }
    }
    rank.meet();
    if (rank.self() == kVictim) {
      page(rank, part, ballast);
      return;
    }
    uint64_t last[kBlocks] = {};
    uint64_t number = 0;
    for (; rank.done() == 0 && !Rank::is_lost(); ++number) {
      put_and_get(rank, number, last);
    }
    for (const uint64_t end = number + 2 * kBlocks; number < end; ++number) {
      put_and_get(rank, number, last);
    }
  });
  EXPECT_GT(ends_seen[test::kEndedByHeadroom], 0);
}

}  // namespace
}  // namespace headroom::direct
#endif
