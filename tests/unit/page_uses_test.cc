// Whether some pages are hot, told from what is seen of a sample.
#include "pager/page_uses.h"
#include "seed.h"

#include <gtest/gtest.h>

#include <random>

namespace headroom::pager {
namespace {

/// Visits blocks whose pages are used since the last visit with these chances; a page that was not used is another one then.
bool judge(double hot_share, double hot_chance, double cold_chance, int visits) {
  std::mt19937 random(headroom::test::seed_of(5));
  std::uniform_real_distribution<double> chance(0, 1);
  PageUses uses;
  uint64_t is_hot = 0;
  uint64_t proven = 0;
  for (int visit = 0; visit < visits; ++visit) {
    const uint64_t all = 0xfffff;
    uint64_t used = 0;
    for (uint64_t bit = 1; bit <= all; bit <<= 1) {
      is_hot = (proven & bit) != 0 ? is_hot : chance(random) < hot_share ? is_hot | bit : is_hot & ~bit;
      used |= chance(random) < ((is_hot & bit) != 0 ? hot_chance : cold_chance) ? bit : 0;
    }
    uses.note_visit(all, used, proven);
    proven = (proven & used) | used;
  }
  return uses.some_are_hot();
}

TEST(PageUses, SomeAreHotIfTheyAreUsedMoreOftenThanOthers) {
  EXPECT_TRUE(judge(0.4, 0.8, 0.1, 1000));
  EXPECT_TRUE(judge(0.2, 0.5, 0.05, 1000));
}

TEST(PageUses, NoneAreWhereAllAreUsedAlike) {
  EXPECT_FALSE(judge(0, 0, 0.05, 1000));
  EXPECT_FALSE(judge(0, 0, 0.3, 1000));
  EXPECT_FALSE(judge(0, 0, 0.9, 1000));
}

TEST(PageUses, NothingIsBelievedOfFewPages) { EXPECT_FALSE(judge(0.4, 0.9, 0.1, 3)); }

TEST(PageUses, OneBlockInEightIsOfTheSample) {
  int sampled = 0;
  for (uint64_t block = 0; block < 8000; ++block) {
    sampled += PageUses::is_sampled(block) ? 1 : 0;
  }
  EXPECT_NEAR(1000, sampled, 100);
}

}  // namespace
}  // namespace headroom::pager
