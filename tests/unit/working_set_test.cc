// What a rank is expected to need in its next turn (sched/working_set.h).
#include "sched/working_set.h"

#include <gtest/gtest.h>

namespace headroom::sched {
namespace {

constexpr int64_t kResident = 64 << 20;

TEST(WorkingSet, LessIsTriedAsLongAsItDoes) {
  WorkingSet set;
  EXPECT_EQ(0, set.expected());
  set.turn_ended(kResident, 0, 0);
  EXPECT_EQ(kResident / 2, set.expected());
  set.turn_ended(kResident, kResident / 100, 0);
  EXPECT_EQ(kResident / 4, set.expected());
}

TEST(WorkingSet, AllIsNeededWhenMuchComesBack) {
  WorkingSet set;
  set.turn_ended(kResident, 0, 0);
  set.turn_ended(kResident / 2, kResident, kResident / 2);
  EXPECT_EQ(kResident, set.expected());
}

TEST(WorkingSet, TriesMoreAndMoreSeldom) {
  WorkingSet set;
  uint64_t between = 0;
  for (int failures = 1; failures < 10; ++failures) {
    set.turn_ended(kResident / 2, kResident, kResident / 2);
    uint64_t turns = 0;
    while (set.expected() == kResident) {
      set.turn_ended(kResident, 0, 0);
      ++turns;
    }
    EXPECT_GE(turns, between);
    EXPECT_LE(turns, 65U);
    between = turns;
  }
  EXPECT_EQ(65U, between);
}

}  // namespace
}  // namespace headroom::sched
