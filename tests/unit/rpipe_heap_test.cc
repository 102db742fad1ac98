// The heap of a pipe against a model that keeps a list of what is taken: content of the tables, policies, fragmentation.
#include "rpipe/heap.h"
#include "seed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <vector>

namespace headroom::rpipe {
namespace {

class HeapOf : public ::testing::TestWithParam<rpipe_policy> {};

uint32_t below(std::mt19937& random, uint32_t end) { return static_cast<uint32_t>(random()) % end; }

/// What is free between what is taken: first unit and units.
std::map<uint32_t, uint32_t> gaps(const std::map<uint32_t, uint32_t>& taken, uint32_t units) {
  std::map<uint32_t, uint32_t> free;
  uint32_t at = 0;
  for (const auto& [first, count] : taken) {
    if (first > at) {
      free[at] = first - at;
    }
    at = first + count;
  }
  if (at < units) {
    free[at] = units - at;
  }
  return free;
}

/// Where a policy that is written down again places so many units; Heap::kNone: nowhere.
uint32_t placed(rpipe_policy policy, const std::map<uint32_t, uint32_t>& free, uint32_t units, uint32_t rover) {
  uint32_t best = Heap::kNone;
  uint32_t best_count = 0;
  bool best_is_behind = false;
  for (const auto& [first, count] : free) {
    if (count < units) {
      continue;
    }
    const bool behind = first >= rover;
    const bool better = best == Heap::kNone || (policy == RPIPE_BEST_FIT && count < best_count) ||
                        (policy == RPIPE_WORST_FIT && count > best_count) ||
                        (policy == RPIPE_NEXT_FIT && behind && !best_is_behind);
    if (better) {
      best = first;
      best_count = count;
      best_is_behind = behind;
    }
  }
  return best;
}

TEST_P(HeapOf, PlacesAsItsPolicySaysAndKeepsItsTables) {
  std::mt19937 random(headroom::test::seed_of(1));
  constexpr uint32_t kMost = 4096;
  Heap heap;
  ASSERT_TRUE(heap.open(kMost, GetParam()));
  uint32_t units = 0;
  std::map<uint32_t, uint32_t> taken;
  uint32_t rover = 0;
  for (int step = 0; step < 200'000; ++step) {
    if (units < kMost && below(random, 1000) == 0) {
      units += 1 + below(random, 300);
      units = std::min(units, kMost);
      heap.grow(units);
    }
    if (below(random, 100) < (taken.size() > 60 ? 45 : 55)) {
      const uint32_t count = 1 + below(random, below(random, 8) == 0 ? 400 : 20);
      const uint32_t expected = placed(GetParam(), gaps(taken, units), count, rover);
      const uint32_t first = heap.take(count);
      ASSERT_EQ(expected, first) << "step " << step;
      if (first != Heap::kNone) {
        taken[first] = count;
        rover = first + count;
      }
    } else if (!taken.empty()) {
      auto one = std::next(taken.begin(), static_cast<ptrdiff_t>(random() % taken.size()));
      heap.give_back(one->first);
      taken.erase(one);
    }
    if (step % 64 == 0) {
      ASSERT_TRUE(heap.is_consistent()) << "step " << step;
      uint32_t largest = 0;
      uint32_t used = 0;
      for (const auto& [first, count] : gaps(taken, units)) {
        largest = std::max(largest, count);
      }
      for (const auto& [first, count] : taken) {
        used += count;
      }
      ASSERT_EQ(largest, heap.largest_free());
      ASSERT_EQ(used, heap.used_units());
    }
  }
  EXPECT_GT(taken.size(), 10U);
}

TEST_P(HeapOf, IsOneChunkAgainWhenAllIsGivenBack) {
  std::mt19937 random(headroom::test::seed_of(7));
  Heap heap;
  ASSERT_TRUE(heap.open(1000, GetParam()));
  heap.grow(400);
  heap.grow(1000);
  std::vector<uint32_t> taken;
  for (uint32_t first = 0; (first = heap.take(1 + below(random, 9))) != Heap::kNone;) {
    taken.push_back(first);
  }
  std::shuffle(taken.begin(), taken.end(), random);
  for (const uint32_t first : taken) {
    heap.give_back(first);
  }
  EXPECT_TRUE(heap.is_consistent());
  EXPECT_EQ(1000U, heap.largest_free());
  EXPECT_EQ(0U, heap.used_units());
  EXPECT_EQ(0U, heap.take(1000));
  EXPECT_EQ(Heap::kNone, heap.take(1));
}

INSTANTIATE_TEST_SUITE_P(Policies, HeapOf, ::testing::Values(RPIPE_FIRST_FIT, RPIPE_NEXT_FIT, RPIPE_BEST_FIT, RPIPE_WORST_FIT));

}  // namespace
}  // namespace headroom::rpipe
