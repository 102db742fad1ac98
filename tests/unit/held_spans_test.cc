// What is held for several receivers counts once, and the sum is right whatever the order, also where the table is full.
#include "direct/held_spans.h"
#include "seed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace headroom::direct {
namespace {

constexpr uint64_t kBlock = 256 << 10;

Span span_at(uint64_t place) { return {reinterpret_cast<char*>(place << 20), 1000}; }

TEST(HeldSpans, CountTheSameContentOnce) {
  HeldSpans held;
  EXPECT_FALSE(held.has(span_at(1)));
  for (int receiver = 0; receiver < 100; ++receiver) {
    held.add(span_at(1), 2 * kBlock);
    EXPECT_TRUE(held.has(span_at(1)));
    EXPECT_EQ(held.bytes(), 2 * kBlock);
  }
  held.add({span_at(1).begin, 999}, kBlock);
  EXPECT_EQ(held.bytes(), 3 * kBlock);
  for (int receiver = 0; receiver < 99; ++receiver) {
    held.drop(span_at(1), 2 * kBlock);
    EXPECT_EQ(held.bytes(), 3 * kBlock);
  }
  held.drop(span_at(1), 2 * kBlock);
  EXPECT_EQ(held.bytes(), kBlock);
  EXPECT_FALSE(held.has(span_at(1)));
}

TEST(HeldSpans, SumUpWhereMoreAreHeldThanTheTableHas) {
  std::mt19937_64 random(headroom::test::seed_of(7));
  HeldSpans held;
  std::vector<uint64_t> places;
  for (int each = 0; each < 5000; ++each) {
    const uint64_t place = 1 + random() % 40;
    places.push_back(place);
    held.add(span_at(place), place * kBlock);
  }
  uint64_t least = 0;
  for (uint64_t place = 1; place <= 40; ++place) {
    least += place * kBlock;
  }
  EXPECT_GE(held.bytes(), least);
  std::shuffle(places.begin(), places.end(), random);
  for (const uint64_t place : places) {
    held.drop(span_at(place), place * kBlock);
  }
  EXPECT_EQ(held.bytes(), 0U);
  held.add(span_at(3), kBlock);
  EXPECT_TRUE(held.has(span_at(3)));  // the table is empty again
}

TEST(HeldSpans, CountAgainWhatIsHeldVeryOften) {
  HeldSpans held;
  constexpr int kTimes = 5000;
  for (int each = 0; each < kTimes; ++each) {
    held.add(span_at(1), kBlock);
  }
  EXPECT_GT(held.bytes(), kBlock);
  EXPECT_LT(held.bytes(), kTimes * kBlock);
  for (int each = 0; each < kTimes; ++each) {
    held.drop(span_at(1), kBlock);
  }
  EXPECT_EQ(held.bytes(), 0U);
}

}  // namespace
}  // namespace headroom::direct
