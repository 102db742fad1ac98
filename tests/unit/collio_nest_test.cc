// Nests, piece lists and patterns: that they mean the bytes that were put into them, in that order, wherever one begins.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "collio/coverage.h"
#include "collio/pattern.h"
#include "seed.h"

namespace headroom::collio {
namespace {

/// Where each byte of the stream lies.
std::vector<int64_t> places(const Nest& nest) {
  std::vector<int64_t> all;
  NestWalk walk(nest, 0);
  for (int64_t left = bytes_of(nest); left > 0;) {
    const int64_t bytes = walk.left();
    for (int64_t byte = 0; byte < bytes; ++byte) {
      all.push_back(walk.position() + byte);
    }
    left -= bytes;
    walk.pass(bytes);
  }
  return all;
}

std::vector<int64_t> places(const Pattern& pattern) {
  if (pattern.list == nullptr) {
    return places(pattern.nest);
  }
  std::vector<int64_t> all;
  for (PieceWalk walk(*pattern.list, 0); walk.left() > 0; walk.pass(walk.left())) {
    for (int64_t byte = 0; byte < walk.left(); ++byte) {
      all.push_back(walk.position() + byte);
    }
  }
  return all;
}

/// What repeating means, byte by byte.
std::vector<int64_t> repeated(const std::vector<int64_t>& once, int64_t count, int64_t stride) {
  std::vector<int64_t> all;
  for (int64_t index = 0; index < count; ++index) {
    for (const int64_t place : once) {
      all.push_back(place + index * stride);
    }
  }
  return all;
}

Nest random_nest(std::mt19937& random) {
  Nest nest;
  nest.first = static_cast<int64_t>(random() % 50);
  nest.piece = 1 + static_cast<int64_t>(random() % 6);
  const auto levels = static_cast<int>(random() % 4);
  for (int level = 0; level < levels; ++level) {
    const int64_t gap = random() % 3 == 0 ? 0 : static_cast<int64_t>(random() % 9);
    EXPECT_TRUE(repeat(nest, 1 + static_cast<int64_t>(random() % 4), span_of(nest) + gap));
  }
  return nest;
}

TEST(CollioNest, RepeatingIsWhatItSays) {
  std::mt19937 random(headroom::test::seed_of(1));
  for (int round = 0; round < 2000; ++round) {
    Nest nest = random_nest(random);
    const std::vector<int64_t> once = places(nest);
    const auto count = static_cast<int64_t>(random() % 4);
    const int64_t stride = static_cast<int64_t>(random() % 200) - 60;
    if (repeat(nest, count, stride)) {
      EXPECT_EQ(repeated(once, count, stride), places(nest)) << "round " << round;
    }
  }
}

TEST(CollioNest, BytesBeforeAPositionAndTheirPlaces) {
  std::mt19937 random(headroom::test::seed_of(2));
  for (int round = 0; round < 500; ++round) {
    const Nest nest = random_nest(random);
    ASSERT_TRUE(goes_forwards(nest));
    const std::vector<int64_t> all = places(nest);
    for (int64_t position = -1; position <= all.back() + 2; ++position) {
      const auto before = std::count_if(all.begin(), all.end(), [&](int64_t place) { return place < position; });
      ASSERT_EQ(before, bytes_before(nest, position)) << "round " << round << " position " << position;
    }
    for (size_t offset = 0; offset < all.size(); ++offset) {
      ASSERT_EQ(all[offset], position_of(nest, static_cast<int64_t>(offset)));
    }
  }
}

TEST(CollioNest, WhatDoesNotFitIsRefused) {
  Nest nest{.first = 0, .piece = 8, .levels = 0, .level = {}};
  EXPECT_FALSE(repeat(nest, INT64_MAX / 4, 16));
  EXPECT_EQ(8, bytes_of(nest));
  for (int level = 0; level < kMostLevels; ++level) {
    EXPECT_TRUE(repeat(nest, 2, 100 * span_of(nest)));
  }
  EXPECT_FALSE(repeat(nest, 2, 100 * span_of(nest)));
  EXPECT_EQ(8 << kMostLevels, bytes_of(nest));
}

TEST(CollioNest, ForwardsMeansNoByteTwice) {
  Nest nest{.first = 0, .piece = 8, .levels = 1, .level = {{3, 7}}};
  EXPECT_FALSE(goes_forwards(nest));
  nest.level[0].stride = 8;
  EXPECT_TRUE(goes_forwards(nest));
  nest.level[0].stride = -16;
  EXPECT_FALSE(goes_forwards(nest));
}

TEST(CollioNest, ScatterAndGatherFromAnywhere) {
  std::mt19937 random(headroom::test::seed_of(3));
  for (int round = 0; round < 500; ++round) {
    const Nest nest = random_nest(random);
    const std::vector<int64_t> all = places(nest);
    std::vector<char> stream(all.size());
    for (char& byte : stream) {
      byte = static_cast<char>(random());
    }
    std::vector<char> window(static_cast<size_t>(all.back() - all.front()) + 1);
    const auto cut = static_cast<size_t>(random()) % all.size();
    NestWalk first(nest, 0);
    scatter(first, window.data(), all.front(), stream.data(), static_cast<int64_t>(cut));
    NestWalk second(nest, static_cast<int64_t>(cut));
    scatter(second, window.data(), all.front(), stream.data() + cut, static_cast<int64_t>(all.size() - cut));
    for (size_t offset = 0; offset < all.size(); ++offset) {
      ASSERT_EQ(stream[offset], window[static_cast<size_t>(all[offset] - all.front())]);
    }
    std::vector<char> back(all.size());
    NestWalk walk(nest, 0);
    gather(walk, window.data(), all.front(), back.data(), static_cast<int64_t>(cut));
    gather(walk, window.data(), all.front(), back.data() + cut, static_cast<int64_t>(all.size() - cut));
    EXPECT_EQ(stream, back);
  }
}

TEST(CollioPieceList, IsWhatWasAddedFromAnyOffsetAndBeforeAnyPosition) {
  std::mt19937 random(headroom::test::seed_of(4));
  for (int round = 0; round < 50; ++round) {
    PieceList list;
    std::vector<int64_t> all;
    int64_t position = static_cast<int64_t>(random() % 100) - 50;
    const auto pieces = static_cast<int>(random() % 1500);
    for (int piece = 0; piece < pieces; ++piece) {
      position += random() % 4 == 0 ? 0 : static_cast<int64_t>(random() % 300);
      const auto bytes = static_cast<int64_t>(random() % 5);
      ASSERT_TRUE(list.add(position, bytes));
      for (int64_t byte = 0; byte < bytes; ++byte) {
        all.push_back(position++);
      }
    }
    ASSERT_TRUE(list.end_list());
    ASSERT_EQ(static_cast<int64_t>(all.size()), list.bytes());
    for (size_t offset = 0; offset < all.size(); offset += 1 + random() % 7) {
      PieceWalk walk(list, static_cast<int64_t>(offset));
      ASSERT_EQ(all[offset], walk.position());
      const int64_t at = all[offset] + static_cast<int64_t>(random() % 3) - 1;
      const auto before = std::lower_bound(all.begin(), all.end(), at) - all.begin();
      ASSERT_EQ(before, list.bytes_before(at));
    }
  }
}

TEST(CollioPieceList, BackwardsIsRefused) {
  PieceList list;
  EXPECT_TRUE(list.add(100, 10));
  EXPECT_FALSE(list.add(109, 1));
}

TEST(CollioPieceList, ShortPiecesTakeFourBytesAtMost) {
  PieceList list;
  std::mt19937 random(headroom::test::seed_of(5));
  int64_t position = 0;
  constexpr int kPieces = 1 << 20;
  for (int piece = 0; piece < kPieces; ++piece) {
    position += 16 * (1 + random() % 15);
    ASSERT_TRUE(list.add(position, 16));
    position += 16;
  }
  ASSERT_TRUE(list.end_list());
  EXPECT_EQ(kPieces, list.pieces());
  EXPECT_LE(list.size(), 4 * kPieces);
}

TEST(CollioPieceList, AViewRepeatsIt) {
  PieceList list;
  ASSERT_TRUE(list.add(3, 2) && list.add(7, 1) && list.end_list());
  const ViewOfPieces view = {&list, 100, 10};
  std::vector<int64_t> all;
  for (int64_t tile = 0; tile < 4; ++tile) {
    for (const int64_t place : {103, 104, 107}) {
      all.push_back(place + tile * 10);
    }
  }
  for (size_t offset = 0; offset < all.size(); ++offset) {
    ViewWalk walk(view, static_cast<int64_t>(offset));
    for (size_t each = offset; each < all.size(); ++each) {
      ASSERT_EQ(all[each], walk.position());
      walk.pass(1);
    }
  }
  for (int64_t position = 95; position < 135; ++position) {
    EXPECT_EQ(std::lower_bound(all.begin(), all.end(), position) - all.begin(), bytes_before(view, position));
  }
}

TEST(CollioPattern, IsWhatTheConstructorsSay) {
  std::mt19937 random(headroom::test::seed_of(6));
  int lists = 0;
  int nests = 0;
  for (int round = 0; round < 1000; ++round) {
    Pattern inner;
    std::vector<int64_t> expected;
    int64_t position = 0;
    const auto runs = static_cast<int>(1 + random() % 3);
    for (int run = 0; run < runs; ++run) {
      position += static_cast<int64_t>(random() % 6);
      const auto bytes = static_cast<int64_t>(1 + random() % 4);
      add_run(inner, position, bytes);
      for (int64_t byte = 0; byte < bytes; ++byte) {
        expected.push_back(position++);
      }
    }
    Pattern outer;
    const auto count = static_cast<int64_t>(1 + random() % 4);
    const int64_t stride = position + static_cast<int64_t>(random() % 5);
    add_elements(outer, inner, 7, count, stride);
    add_elements(outer, inner, 7 + count * stride, 1, stride);
    ASSERT_TRUE(end_pattern(outer, (count + 2) * stride + 7));
    std::vector<int64_t> all = repeated(expected, count + 1, stride);
    for (int64_t& place : all) {
      place += 7;
    }
    EXPECT_EQ(all, places(outer)) << "round " << round;
    ++(outer.list != nullptr ? lists : nests);
    clear(inner);
    clear(outer);
  }
  EXPECT_GT(lists, 100);
  EXPECT_GT(nests, 100);
}

TEST(CollioPattern, EquallySpacedPiecesAreANest) {
  Pattern pattern;
  for (int64_t piece = 0; piece < 1000; ++piece) {
    add_run(pattern, 40 * piece, 8);
  }
  ASSERT_TRUE(end_pattern(pattern, 40000));
  EXPECT_EQ(nullptr, pattern.list);
  EXPECT_EQ(1, pattern.nest.levels);
}

TEST(CollioPattern, WhatOverlapsItsRepetitionOrGoesBackwardsIsNoView) {
  Pattern pattern;
  add_run(pattern, 0, 8);
  EXPECT_FALSE(end_pattern(pattern, 7));
  Pattern back;
  add_run(back, 10, 2);
  add_run(back, 0, 2);
  EXPECT_FALSE(end_pattern(back, 100));
  clear(back);
}

TEST(CollioCoverage, MarksWhatNestsHave) {
  std::mt19937 random(headroom::test::seed_of(7));
  Coverage coverage;
  ASSERT_TRUE(coverage.open(100000));
  for (int round = 0; round < 1000; ++round) {
    const Nest nest = random_nest(random);
    const std::vector<int64_t> all = places(nest);
    const auto from = static_cast<int64_t>(random() % all.size());
    const int64_t until = from + 1 + static_cast<int64_t>(random() % (all.size() - static_cast<size_t>(from)));
    const int64_t begin = all[static_cast<size_t>(from)] - static_cast<int64_t>(random() % 3);
    const int64_t end = all[static_cast<size_t>(until) - 1] + 1;
    coverage.begin(begin, end, common_unit(0, nest, from, until, begin));
    coverage.mark(NestWalk(nest, from), until - from);
    std::vector<bool> marked(static_cast<size_t>(end - begin));
    for (int64_t offset = from; offset < until; ++offset) {
      marked[static_cast<size_t>(all[static_cast<size_t>(offset)] - begin)] = true;
    }
    int64_t stretches = 0;
    int64_t at = begin;
    int64_t first = 0;
    int64_t after = 0;
    while (coverage.next_stretch(at, first, after)) {
      for (; at < after; ++at) {
        ASSERT_EQ(at >= first, marked[static_cast<size_t>(at - begin)]) << "round " << round << " at " << at - begin;
      }
      ++stretches;
    }
    EXPECT_EQ(end, at);
    EXPECT_EQ(end, coverage.last());
    EXPECT_EQ(stretches, coverage.stretches());
    EXPECT_EQ(stretches == 1 && first == begin, coverage.is_full());
  }
  coverage.close();
}

}  // namespace
}  // namespace headroom::collio
