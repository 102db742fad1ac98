// Layouts: how runs are joined, and that walking and skipping give the bytes in the datatype's order.
#include "direct/layout.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <random>
#include <vector>

#include "direct/message_memory.h"

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

TEST_F(Layouts, RandomLayoutsAreCopiedByteForByte) {
  std::mt19937 random(5);
  constexpr size_t kArea = 128 << 10;
  std::vector<char> source(kArea), target(kArea), expected(kArea);
  for (int round = 0; round < 300; ++round) {
    LayoutBuilder builders[2];
    std::vector<int64_t> elements[2];
    Layout* layouts[2];
    for (int side = 0; side < 2; ++side) {
      add_random(builders[side], elements[side], random);
      layouts[side] = builders[side].finish(memory, 8000);
      ASSERT_NE(nullptr, layouts[side]);
      EXPECT_EQ(elements[side].size(), layouts[side]->element_bytes);
    }
    // As many bytes as both sides have in whole elements, or fewer: the last element may be cut.
    const uint64_t bytes = 1 + random() % (4 * std::min(elements[0].size(), elements[1].size()));
    const auto from = offsets(elements[0], 8000, 8 + bytes / elements[0].size());
    const auto to = offsets(elements[1], 8000, 8 + bytes / elements[1].size());
    for (auto& byte : source) {
      byte = static_cast<char>(random());
    }
    std::fill(target.begin(), target.end(), 0);
    std::fill(expected.begin(), expected.end(), 0);
    constexpr int64_t kOrigin = 2000;
    for (uint64_t index = 0; index < bytes; ++index) {
      expected[static_cast<size_t>(kOrigin + to[index])] = source[static_cast<size_t>(kOrigin + from[index])];
    }
    // In two steps, the second by walks that skip to its beginning: what overlaps within the target is written in order.
    const Content out = {source.data() + kOrigin, bytes, layouts[0]};
    const Content in = {target.data() + kOrigin, bytes, layouts[1]};
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
    ASSERT_EQ(expected, target) << round;
    const Span span = span_of(out);
    for (uint64_t index = 0; index < bytes; ++index) {
      const char* at = out.address + from[index];
      ASSERT_TRUE(at >= span.begin && at < span.begin + span.bytes);
    }
    for (int side = 0; side < 2; ++side) {
      let_go(layouts[side], memory);
      builders[side].drop();
    }
  }
}

}  // namespace
}  // namespace headroom::direct
