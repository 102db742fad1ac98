// Whether a fault goes on where another was a moment ago.
#include "pager/recent_places.h"

#include <gtest/gtest.h>

namespace headroom::pager {
namespace {

TEST(RecentPlaces, NothingIsNearBeforeTheFirst) {
  const RecentPlaces places;
  EXPECT_FALSE(places.has_near(0, 4));
  EXPECT_FALSE(places.has_near(UINT64_MAX - 1, 4));
}

TEST(RecentPlaces, NeighboursAreNearOnBothSides) {
  RecentPlaces places;
  places.note(100);
  EXPECT_TRUE(places.has_near(96, 4));
  EXPECT_TRUE(places.has_near(104, 4));
  EXPECT_FALSE(places.has_near(95, 4));
  EXPECT_FALSE(places.has_near(105, 4));
  EXPECT_FALSE(places.has_near(100, 4));  // itself
  places.note(1);
  EXPECT_TRUE(places.has_near(0, 4));  // and not across the end
  EXPECT_FALSE(places.has_near(UINT64_MAX - 1, 4));
}

TEST(RecentPlaces, FourThreadsMayGoOnSideBySide) {
  RecentPlaces places;
  for (uint64_t step = 0; step < 3; ++step) {
    for (uint64_t thread = 0; thread < 4; ++thread) {
      EXPECT_EQ(places.has_near(thread * 1000 + step, 1), step > 0);
      places.note(thread * 1000 + step);
    }
  }
}

TEST(RecentPlaces, AnotherTryDrivesNoneOut) {
  RecentPlaces places;
  places.note(100);
  for (int attempt = 0; attempt < 8; ++attempt) {
    places.note(200);
  }
  EXPECT_TRUE(places.has_near(101, 1));
  for (uint64_t place = 1000; place < 4000; place += 1000) {
    places.note(place);
  }
  EXPECT_FALSE(places.has_near(101, 1));
}

}  // namespace
}  // namespace headroom::pager
