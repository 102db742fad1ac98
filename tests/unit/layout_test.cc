// Layouts: how runs are joined, and that walking and skipping give the bytes in the datatype's order.
#include "direct/layout.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <random>
#include <vector>

#include "direct/message_memory.h"
#include "seed.h"

namespace headroom::direct {
namespace {

class Layouts : public ::testing::Test {
 protected:
  void SetUp() override {
    file = memfd_create("messages", 0);
    ASSERT_EQ(base::Status::kOk, memory.open(file, 0, 1));
  }
  void TearDown() override { close(file); }

  /// Offsets of the bytes of `count` elements, as the builder was told them.
  static std::vector<int64_t> offsets(const std::vector<int64_t>& element, int64_t extent, uint64_t count) {
    std::vector<int64_t> all;
    for (uint64_t index = 0; index < count; ++index) {
      for (const int64_t offset : element) {
        all.push_back(offset + static_cast<int64_t>(index) * extent);
      }
    }
    return all;
  }

  /// Adds random runs, and notes each byte's offset.
  static void add_random(LayoutBuilder& builder, std::vector<int64_t>& element, std::mt19937& random) {
    const auto runs = static_cast<unsigned>(1 + random() % 6);
    for (unsigned run = 0; run < runs; ++run) {
      const auto offset = static_cast<int64_t>(random() % 4000) - 1000;
      const uint64_t bytes = 1 + random() % 40;
      const uint64_t count = 1 + random() % 5;
      const auto stride = static_cast<int64_t>(bytes + random() % 3 * 7);
      builder.add(offset, bytes, count, stride);
      for (uint64_t piece = 0; piece < count; ++piece) {
        for (uint64_t byte = 0; byte < bytes; ++byte) {
          element.push_back(offset + static_cast<int64_t>(piece) * stride + static_cast<int64_t>(byte));
        }
      }
    }
  }

  int file = -1;
  MessageMemory memory;
};

TEST_F(Layouts, NeighboursBecomeOneRun) {
  LayoutBuilder builder;
  builder.add(0, 8, 1, 0);
  builder.add(8, 8, 1, 0);
  builder.add(16, 4, 3, 4);
  EXPECT_TRUE(builder.is_contiguous(28));
  EXPECT_FALSE(builder.is_contiguous(32));
  builder.drop();
}

TEST_F(Layouts, AVectorWrittenOutIsOneRun) {
  LayoutBuilder builder;
  for (int index = 0; index < 1000; ++index) {
    builder.add(index * 24, 8, 1, 0);
  }
  Layout* layout = builder.finish(memory, 24000);
  ASSERT_NE(nullptr, layout);
  EXPECT_EQ(1U, layout->runs);
  EXPECT_EQ(1000U, layout->run[0].count);
  EXPECT_EQ(24, layout->run[0].stride);
  EXPECT_EQ(8000U, layout->element_bytes);
  EXPECT_EQ(0, layout->first);
  EXPECT_EQ(999 * 24 + 8, layout->end);
  let_go(layout, memory);
  builder.drop();
}

TEST_F(Layouts, ARunThatOnlyLooksLikeTheNextPieceIsNotJoined) {
  LayoutBuilder builder;
  builder.add(0, 8, 3, 16);
  builder.add(48, 8, 2, 20);  // begins where the run would go on, but goes on otherwise
  Layout* layout = builder.finish(memory, 100);
  EXPECT_EQ(2U, layout->runs);
  let_go(layout, memory);
  builder.drop();
}

/// Copies between two layouts whose bytes' offsets are known, in two steps, and compares with one byte after the other.
class Copies : public Layouts {
 protected:
  static constexpr size_t kArea = 512 << 10;
  static constexpr int64_t kOrigin = 2000;

  struct Side {
    Layout* layout;
    std::vector<int64_t> offset;  // of each byte
  };

  Copies() {
    for (auto& byte : source) {
      byte = static_cast<char>(random());
    }
  }

  void copy_and_compare(const Side& from, const Side& to, uint64_t bytes) {
    std::fill(target.begin(), target.end(), 0);
    std::fill(expected.begin(), expected.end(), 0);
    for (uint64_t index = 0; index < bytes; ++index) {
      expected[static_cast<size_t>(kOrigin + to.offset[index])] = source[static_cast<size_t>(kOrigin + from.offset[index])];
    }
    // The second step is by walks that skip to its beginning: what overlaps within the target is written in order.
    const Content out = {source.data() + kOrigin, bytes, from.layout};
    const Content in = {target.data() + kOrigin, bytes, to.layout};
    const uint64_t first = random() % (bytes + 1);
    Walk reader(out);
    Walk writer(in);
    copy(writer, reader, first);
    Walk later_reader(out);
    Walk later_writer(in);
    later_reader.skip(first);
    later_writer.skip(first);
    EXPECT_EQ(bytes - first, later_reader.left());
    copy(later_writer, later_reader, bytes - first);
    ASSERT_EQ(expected, target);
    const Span span = span_of(out);
    for (uint64_t index = 0; index < bytes; ++index) {
      const char* at = out.address + from.offset[index];
      ASSERT_TRUE(at >= span.begin && at < span.begin + span.bytes);
    }
  }

  std::mt19937 random{headroom::test::seed_of(5)};
  std::vector<char> source = std::vector<char>(kArea), target = source, expected = source;
};

TEST_F(Copies, RandomLayoutsByteForByte) {
  for (int round = 0; round < 300; ++round) {
    LayoutBuilder builders[2];
    std::vector<int64_t> elements[2];
    Side sides[2];
    for (int side = 0; side < 2; ++side) {
      add_random(builders[side], elements[side], random);
      sides[side].layout = builders[side].finish(memory, 8000);
      ASSERT_NE(nullptr, sides[side].layout);
      EXPECT_EQ(elements[side].size(), sides[side].layout->element_bytes);
    }
    // As many bytes as both sides have in whole elements, or fewer: the last element may be cut.
    const uint64_t bytes = 1 + random() % (4 * std::min(elements[0].size(), elements[1].size()));
    for (int side = 0; side < 2; ++side) {
      sides[side].offset = offsets(elements[side], 8000, 8 + bytes / elements[side].size());
    }
    ASSERT_NO_FATAL_FAILURE(copy_and_compare(sides[0], sides[1], bytes)) << round;
    for (int side = 0; side < 2; ++side) {
      let_go(sides[side].layout, memory);
      builders[side].drop();
    }
  }
}

/// Matrices of pieces of all lengths, read along rows or columns on either side, as one element or as one element a column.
TEST_F(Copies, MatricesThatAreTurnedRound) {
  for (int round = 0; round < 400; ++round) {
    const std::array<uint64_t, 15> lengths = {1, 2, 4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 100, 128, 256};
    const uint64_t piece = lengths[random() % lengths.size()];
    const uint64_t rows = 1 + random() % 40;
    const uint64_t columns = 1 + random() % 40;
    LayoutBuilder builders[2];
    Side sides[2];
    for (int side = 0; side < 2; ++side) {
      const auto gap = static_cast<int64_t>(random() % 3 * piece);
      const auto stride = static_cast<int64_t>(columns * piece) + gap;
      const unsigned shape = random() % 4;  // by rows; by columns, each a run; by columns, each an element; without gaps
      const bool by_rows = shape == 0;
      const uint64_t lines = by_rows ? rows : columns;
      std::vector<int64_t> order;
      for (uint64_t line = 0; line < lines; ++line) {
        for (uint64_t at = 0; at < (by_rows ? columns : rows); ++at) {
          const int64_t place = shape == 3 ? static_cast<int64_t>((line * rows + at) * piece)
                                : by_rows  ? static_cast<int64_t>(line) * stride + static_cast<int64_t>(at * piece)
                                           : static_cast<int64_t>(line * piece) + static_cast<int64_t>(at) * stride;
          for (uint64_t byte = 0; byte < piece; ++byte) {
            sides[side].offset.push_back(place + static_cast<int64_t>(byte));
          }
        }
      }
      for (uint64_t line = 0; line < (shape == 2 ? 1 : lines); ++line) {
        if (by_rows) {
          builders[side].add(static_cast<int64_t>(line) * stride, columns * piece, 1, 0);
        } else {
          builders[side].add(static_cast<int64_t>(line * piece), piece, rows, stride);
        }
      }
      const auto extent = static_cast<int64_t>(shape == 2 ? piece : rows * columns * 8 * piece);
      sides[side].layout = shape == 3 ? nullptr : builders[side].finish(memory, extent);
    }
    const uint64_t all = rows * columns * piece;
    const uint64_t bytes = random() % 2 == 0 ? all : 1 + random() % all;
    ASSERT_NO_FATAL_FAILURE(copy_and_compare(sides[0], sides[1], bytes)) << round;
    for (int side = 0; side < 2; ++side) {
      let_go(sides[side].layout, memory);
      builders[side].drop();
    }
  }
}

}  // namespace
}  // namespace headroom::direct
