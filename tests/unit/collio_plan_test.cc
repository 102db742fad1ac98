// The plan of a collective call: that every byte has one aggregator, that who has more memory left does more, and nobody below
// the floor anything.
#include "collio/plan.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "collio/plan_of_paper.h"
#include "seed.h"

namespace headroom::collio {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST(CollioPlan, WindowsFollowTheRoom) {
  EXPECT_EQ(kLargestWindow, window_for(1000 * kMiB, kLargestWindow));
  EXPECT_EQ(kSmallestWindow, window_for(0, kLargestWindow));
  EXPECT_EQ(64 << 10, window_for(1000 * kMiB, 64 << 10));
  int64_t before = 0;
  for (int64_t room = 0; room < 16 * kMiB; room += 100000) {
    const int64_t window = window_for(room, kLargestWindow);
    EXPECT_GE(window, before);
    EXPECT_TRUE(room < kFloor || 2 * window + kStages * kChunkBytes <= room);
    before = window;
  }
}

TEST(CollioPlan, DealtByWeightWithoutGaps) {
  const NodeAccess nodes[] = {{0, 0, 100 * kMiB, kFloor}, {4, 0, 100 * kMiB, 1000 * kMiB}, {8, 0, 100 * kMiB, 1000 * kMiB}};
  Domain domains[3];
  ASSERT_EQ(3, deal(nodes, 3, 0, 100 * kMiB, {}, domains));
  EXPECT_EQ(0, domains[0].begin);
  EXPECT_EQ(domains[0].end, domains[1].begin);
  EXPECT_EQ(domains[1].end, domains[2].begin);
  EXPECT_EQ(100 * kMiB, domains[2].end);
  EXPECT_EQ(0, domains[1].begin % 4096);
  // The times are alike: bytes / weight.
  const auto time = [](const Domain& domain) {
    return static_cast<double>(domain.end - domain.begin) / weight_of(domain.window);
  };
  EXPECT_NEAR(1, time(domains[0]) / time(domains[1]), 0.01);
  EXPECT_NEAR(1, time(domains[2]) / time(domains[1]), 0.01);
  EXPECT_LT(domains[0].window, domains[1].window);
}

TEST(CollioPlan, APoorNodeAggregatesNothingAndOneWithRoomDoesItsPart) {
  NodeAccess nodes[] = {{0, 0, 64 * kMiB, kFloor - 1}, {2, 0, 64 * kMiB, 100 * kMiB}};
  Domain domains[2];
  ASSERT_EQ(1, make_domains(nodes, 2, {}, domains));
  EXPECT_EQ(2, domains[0].rank);
  EXPECT_EQ(0, domains[0].begin);
  EXPECT_EQ(64 * kMiB, domains[0].end);
}

TEST(CollioPlan, WhereNobodyHasTheFloorTheRichestDoesAll) {
  NodeAccess nodes[] = {{0, 0, 64 * kMiB, 1000}, {2, 0, 64 * kMiB, 3000}, {4, 0, 64 * kMiB, 2000}};
  Domain domains[3];
  ASSERT_EQ(1, make_domains(nodes, 3, {}, domains));
  EXPECT_EQ(2, domains[0].rank);
  EXPECT_EQ(kSmallestWindow, domains[0].window);
}

TEST(CollioPlan, NodesThatDoNotMixKeepTheirOwn) {
  NodeAccess nodes[] = {
      {6, 300 * kMiB, 400 * kMiB, 100 * kMiB}, {0, 0, 100 * kMiB, 100 * kMiB}, {3, 100 * kMiB, 200 * kMiB, 50 * kMiB}};
  Domain domains[3];
  ASSERT_EQ(3, make_domains(nodes, 3, {}, domains));
  EXPECT_EQ(0, domains[0].rank);
  EXPECT_EQ(3, domains[1].rank);
  EXPECT_EQ(6, domains[2].rank);
  EXPECT_EQ(300 * kMiB, domains[2].begin);
}

TEST(CollioPlan, APoorGroupIsMerged) {
  NodeAccess last_is_poor[] = {{0, 0, 100 * kMiB, 100 * kMiB}, {3, 100 * kMiB, 200 * kMiB, 0}};
  Domain domains[2];
  ASSERT_EQ(1, make_domains(last_is_poor, 2, {}, domains));
  EXPECT_EQ(0, domains[0].rank);
  EXPECT_EQ(200 * kMiB, domains[0].end);
  NodeAccess first_is_poor[] = {{0, 0, 100 * kMiB, 0}, {3, 100 * kMiB, 200 * kMiB, 100 * kMiB}};
  ASSERT_EQ(1, make_domains(first_is_poor, 2, {}, domains));
  EXPECT_EQ(3, domains[0].rank);
  EXPECT_EQ(0, domains[0].begin);
  NodeAccess somebody_is_idle[] = {{0, 0, 100 * kMiB, 0}, {3, 0, 0, 100 * kMiB}};
  ASSERT_EQ(1, make_domains(somebody_is_idle, 2, {}, domains));
  EXPECT_EQ(3, domains[0].rank);
}

TEST(CollioPlan, NoMoreAggregatorsThanAllowedOrWorthIt) {
  std::vector<NodeAccess> nodes;
  nodes.reserve(8);
  for (int node = 0; node < 8; ++node) {
    nodes.push_back({node, 0, 64 * kMiB, (10 + node) * kMiB});
  }
  std::vector<Domain> domains(8);
  PlanLimits limits;
  limits.most_aggregators = 3;
  ASSERT_EQ(3, make_domains(nodes.data(), 8, limits, domains.data()));
  for (int domain = 0; domain < 3; ++domain) {
    EXPECT_GE(domains[static_cast<size_t>(domain)].rank, 5) << "the ones with most room";
  }
  for (NodeAccess& node : nodes) {
    node.end = 100000;
  }
  EXPECT_EQ(1, make_domains(nodes.data(), 8, {}, domains.data()));
}

TEST(CollioPlan, EveryByteHasOneAggregatorWhateverTheNodes) {
  std::mt19937 random(headroom::test::seed_of(8));
  for (int round = 0; round < 3000; ++round) {
    std::vector<NodeAccess> nodes;
    const auto count = static_cast<int>(1 + random() % 12);
    int64_t lowest = INT64_MAX;
    int64_t highest = 0;
    for (int node = 0; node < count; ++node) {
      const auto first = static_cast<int64_t>(random() % 200) * kMiB / 2;
      const int64_t bytes = random() % 5 == 0 ? 0 : static_cast<int64_t>(random() % 60) * kMiB / 3;
      nodes.push_back({node, first, first + bytes, static_cast<int64_t>(random() % 4) * kMiB * 2});
      lowest = bytes > 0 ? std::min(lowest, first) : lowest;
      highest = bytes > 0 ? std::max(highest, first + bytes) : highest;
    }
    const std::vector<NodeAccess> given = nodes;
    PlanLimits limits;
    limits.most_aggregators = random() % 2 == 0 ? INT32_MAX : static_cast<int>(1 + random() % 4);
    std::vector<Domain> domains(nodes.size());
    const int made = make_domains(nodes.data(), count, limits, domains.data());
    ASSERT_LE(made, std::min(count, limits.most_aggregators)) << "round " << round;
    for (const NodeAccess& node : given) {
      int64_t at = node.first;
      for (int domain = 0; domain < made && node.first < node.end; ++domain) {
        const Domain& each = domains[static_cast<size_t>(domain)];
        at = each.begin <= at ? std::max(at, each.end) : at;
      }
      ASSERT_TRUE(at >= node.end) << "round " << round << ": bytes of node " << node.rank << " belong to nobody";
    }
    for (int domain = 1; domain < made; ++domain) {
      ASSERT_LE(domains[static_cast<size_t>(domain) - 1].end, domains[static_cast<size_t>(domain)].begin);
    }
    for (int domain = 0; domain < made; ++domain) {
      const Domain& each = domains[static_cast<size_t>(domain)];
      ASSERT_LT(each.begin, each.end);
      ASSERT_GT(each.window, 0);
      for (int other = 0; other < domain; ++other) {
        ASSERT_NE(each.rank, domains[static_cast<size_t>(other)].rank) << "round " << round;
      }
    }
  }
}

TEST(CollioPlan, ThePapersPlanCoversTheRangeAndIsLessEven) {
  std::mt19937 random(headroom::test::seed_of(9));
  EXPECT_EQ(1, parts_by_bisection(0, 100, 100));
  EXPECT_EQ(4, parts_by_bisection(0, 100, 49));
  double ours = 0;
  double papers = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<NodeAccess> nodes;
    const auto count = static_cast<int>(8 + random() % 30);
    const int64_t end = count * 50 * kMiB;
    for (int node = 0; node < count; ++node) {
      nodes.push_back({node, 0, end, static_cast<int64_t>(random() % 8) * kMiB});
    }
    std::vector<Domain> domains(nodes.size());
    const int made = bisect_and_remerge(nodes.data(), count, 0, end, {}, domains.data());
    const auto slowest = [&](int domain_count) {
      double time = 0;
      for (int each = 0; each < domain_count; ++each) {
        const Domain& domain = domains[static_cast<size_t>(each)];
        time = std::max(time, static_cast<double>(domain.end - domain.begin) / weight_of(domain.window));
      }
      return time;
    };
    if (made > 0) {
      EXPECT_EQ(0, domains[0].begin);
      EXPECT_EQ(end, domains[static_cast<size_t>(made) - 1].end);
      for (int each = 1; each < made; ++each) {
        EXPECT_EQ(domains[static_cast<size_t>(each) - 1].end, domains[static_cast<size_t>(each)].begin);
        EXPECT_GE(nodes[static_cast<size_t>(domains[static_cast<size_t>(each)].rank)].room, kFloor);
      }
      papers += slowest(made);
      ours += slowest(make_domains(nodes.data(), count, {}, domains.data()));
    }
  }
  EXPECT_LT(1.5 * ours, papers);
}

TEST(CollioPlan, InterleavedIfRangesOverlap) {
  std::vector<Opening> openings(3);
  int order[3];
  openings[0].bytes = openings[1].bytes = openings[2].bytes = 10;
  openings[0].first = 20, openings[0].end = 30;
  openings[1].first = 0, openings[1].end = 10;
  openings[2].first = 10, openings[2].end = 20;
  EXPECT_FALSE(is_interleaved(openings.data(), 3, order));
  openings[2].end = 21;
  EXPECT_TRUE(is_interleaved(openings.data(), 3, order));
  openings[2].bytes = 0;
  EXPECT_FALSE(is_interleaved(openings.data(), 3, order));
}

}  // namespace
}  // namespace headroom::collio
