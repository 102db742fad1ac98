// Channels between two threads and between two processes: order and content, no limit, chunks used again.
#include "direct/channel.h"
#include "seed.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <random>
#include <thread>
#include <vector>

namespace headroom::direct {
namespace {

void fill(char* at, uint32_t bytes, uint32_t seed) {
  for (uint32_t i = 0; i < bytes; ++i) {
    at[i] = static_cast<char>(seed + i * 7);
  }
}

bool is_filled(const char* at, uint32_t bytes, uint32_t seed) {
  for (uint32_t i = 0; i < bytes; ++i) {
    if (at[i] != static_cast<char>(seed + i * 7)) {
      return false;
    }
  }
  return true;
}

class Channel : public ::testing::Test {
 protected:
  void SetUp() override {
    file = memfd_create("messages", 0);
    ASSERT_GE(file, 0);
    ASSERT_EQ(base::Status::kOk, memory.open(file, 0, 2));
    ASSERT_TRUE(writer.open(memory));
    reader.open(memory.base(), writer.first_chunk());
  }
  void TearDown() override { close(file); }

  /// Some records share a line with the one before, others begin on a line whatever comes before.
  void send(uint32_t bytes, uint32_t number) {
    const bool on_line = number % 5 == 0;
    RecordHeader* record = writer.begin(bytes, on_line);
    ASSERT_NE(nullptr, record);
    ASSERT_EQ(0U, reinterpret_cast<uintptr_t>(record) % (on_line ? kLineBytes : kHalfBytes));
    record->tag = static_cast<int32_t>(number);
    record->context = number * 3;
    record->source = 1;
    record->bytes = bytes;
    fill(record->payload(), bytes, number);
    writer.publish(record, RecordKind::kPayload, number % 3 != 0);
  }

  /// Waits for the next record and checks it.
  RecordHeader* receive(uint32_t bytes, uint32_t number) {
    RecordHeader* record = nullptr;
    while ((record = reader.peek()) == nullptr) {
      sched_yield();
    }
    EXPECT_EQ(static_cast<int32_t>(number), record->tag);
    EXPECT_EQ(number * 3, record->context);
    EXPECT_EQ(bytes, record->bytes);
    EXPECT_TRUE(is_filled(record->payload(), bytes, number));
    reader.advance(record);
    return record;
  }

  static uint32_t random_bytes(std::mt19937& random) {
    const uint32_t most = random() % 4 == 0 ? kLargestPayload : 100;
    return static_cast<uint32_t>(random()) % (most + 1);
  }

  int file = -1;
  MessageMemory memory;
  ChannelWriter writer;
  ChannelReader reader;
};

TEST_F(Channel, IsEmptyAtFirst) { EXPECT_EQ(nullptr, reader.peek()); }

TEST_F(Channel, RecordsThatFollowAtOnceShareLines) {
  std::vector<const char*> at;
  for (const bool packed : {true, true, false, false, true}) {
    RecordHeader* record = writer.begin(4, false);
    record->bytes = 4;
    at.push_back(reinterpret_cast<const char*>(record));
    writer.publish(record, RecordKind::kPayload, packed);
  }
  EXPECT_EQ(32, at[1] - at[0]);
  EXPECT_EQ(32, at[2] - at[1]);
  EXPECT_EQ(64, at[3] - at[2]);
  EXPECT_EQ(64, at[4] - at[3]);
  const RecordHeader* on_line = writer.begin(4, true);
  EXPECT_EQ(64, reinterpret_cast<const char*>(on_line) - at[4]);
  for (const char* place : at) {
    RecordHeader* record = reader.peek();
    EXPECT_EQ(place, reinterpret_cast<const char*>(record));
    reader.advance(record);
  }
  EXPECT_EQ(nullptr, reader.peek());  // what was skipped is nothing
}

TEST_F(Channel, KeepsOrderAndContentBetweenThreads) {
  constexpr uint32_t kMessages = 100000;
  std::thread other([&] {
    std::mt19937 random(headroom::test::seed_of(5));
    for (uint32_t number = 0; number < kMessages; ++number) {
      send(random_bytes(random), number);
    }
  });
  std::mt19937 random(headroom::test::seed_of(5));
  for (uint32_t number = 0; number < kMessages; ++number) {
    ChannelReader::give_back(receive(random_bytes(random), number));
    if (HasFailure()) {
      break;
    }
  }
  other.join();
  EXPECT_EQ(nullptr, reader.peek());
}

TEST_F(Channel, NeverMakesTheWriterWait) {
  constexpr uint32_t kMessages = 100000;  // nobody reads
  for (uint32_t number = 0; number < kMessages; ++number) {
    send(number % 300, number);
  }
  EXPECT_GT(writer.chunks(), 500U);
  for (uint32_t number = 0; number < kMessages; ++number) {
    ChannelReader::give_back(receive(number % 300, number));
  }
  const uint64_t chunks = writer.chunks();
  for (uint32_t number = 0; number < kMessages; ++number) {
    send(number % 300, number);
  }
  EXPECT_LE(writer.chunks(), chunks + 1);  // all of them were used again
}

TEST_F(Channel, UsesTwoChunksWhileTheReaderKeepsUp) {
  for (uint32_t number = 0; number < 20000; ++number) {
    send(number % 4000, number);
    ChannelReader::give_back(receive(number % 4000, number));
  }
  EXPECT_EQ(2U, writer.chunks());
}

TEST_F(Channel, AMessageThatNobodyReceivesKeepsItsOwnChunkOnly) {
  send(10, 0);
  RecordHeader* const kept = receive(10, 0);
  for (uint32_t number = 1; number < 20000; ++number) {
    send(number % 4000, number);
    ChannelReader::give_back(receive(number % 4000, number));
  }
  EXPECT_LE(writer.chunks(), 4U);
  EXPECT_TRUE(is_filled(kept->payload(), 10, 0));
}

TEST_F(Channel, WhatTheWriterKeepsStaysToo) {
  RecordHeader* const kept = writer.begin(30);
  kept->bytes = 30;
  memset(kept->payload(), 'k', 30);
  ChannelWriter::keep(kept);
  writer.publish(kept, RecordKind::kPayload);
  RecordHeader* const there = reader.peek();
  reader.advance(there);
  ChannelReader::give_back(there);
  for (uint32_t number = 1; number < 20000; ++number) {
    send(number % 4000, number);
    ChannelReader::give_back(receive(number % 4000, number));
  }
  EXPECT_EQ('k', kept->payload()[29]);
  EXPECT_LE(writer.chunks(), 4U);
  ChannelWriter::give_back(kept);
}

TEST_F(Channel, WhatIsKeptStaysWhateverComesAfter) {
  std::mt19937 random(headroom::test::seed_of(9));
  std::deque<std::pair<RecordHeader*, uint32_t>> kept;
  std::vector<uint32_t> sizes;
  for (uint32_t number = 0; number < 30000; ++number) {
    const uint32_t bytes = random_bytes(random);
    send(bytes, number);
    sizes.push_back(bytes);
    kept.emplace_back(receive(bytes, number), number);
    while (kept.size() > random() % 400) {
      const auto at = static_cast<long>(random() % kept.size());  // given back in any order
      const auto [record, which] = kept[static_cast<size_t>(at)];
      ASSERT_EQ(static_cast<int32_t>(which), record->tag);
      ASSERT_TRUE(is_filled(record->payload(), sizes[which], which));
      ChannelReader::give_back(record);
      kept.erase(kept.begin() + at);
    }
  }
  EXPECT_LT(writer.chunks(), 200U);
}

TEST_F(Channel, BetweenProcesses) {
  constexpr uint32_t kMessages = 20000;
  const uint64_t first = writer.first_chunk();
  const pid_t child = fork();
  if (child == 0) {  // the mapping is not inherited
    MessageMemory own;
    if (own.open(file, 1, 2) != base::Status::kOk) {
      _exit(2);
    }
    ChannelReader from;
    from.open(own.base(), first);
    std::mt19937 random(headroom::test::seed_of(3));
    for (uint32_t number = 0; number < kMessages; ++number) {
      RecordHeader* record = nullptr;
      while ((record = from.peek()) == nullptr) {
        sched_yield();
      }
      const uint32_t bytes = random_bytes(random);
      if (record->tag != static_cast<int32_t>(number) || record->bytes != bytes ||
          !is_filled(record->payload(), bytes, number)) {
        _exit(1);
      }
      from.advance(record);
      ChannelReader::give_back(record);
    }
    _exit(0);
  }
  std::mt19937 random(headroom::test::seed_of(3));
  for (uint32_t number = 0; number < kMessages; ++number) {
    send(random_bytes(random), number);
  }
  int status = -1;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
}

TEST(MessageMemory, PiecesAreAlignedApartAndUsedAgain) {
  const int file = memfd_create("messages", 0);
  MessageMemory memory;
  ASSERT_EQ(base::Status::kOk, memory.open(file, 1, 2));
  std::vector<std::pair<char*, uint64_t>> pieces;
  for (uint64_t bytes = 1; bytes <= 4 << 20; bytes = bytes * 3 + 1) {
    for (int repeat = 0; repeat < 5; ++repeat) {
      auto* piece = static_cast<char*>(memory.allocate(bytes));
      ASSERT_NE(nullptr, piece);
      memset(piece, repeat + 1, bytes);
      pieces.emplace_back(piece, bytes);
      if (bytes >= kChunkBytes && bytes < 1 << 20) {
        EXPECT_EQ(0U, reinterpret_cast<uintptr_t>(piece) % kChunkBytes);
      }
    }
  }
  int repeat = 0;
  for (auto [piece, bytes] : pieces) {
    for (uint64_t i = 0; i < bytes; ++i) {
      ASSERT_EQ(repeat % 5 + 1, piece[i]);
    }
    ++repeat;
    memory.release(piece, bytes);
  }
  const uint64_t used = memory.used_bytes();
  for (auto [piece, bytes] : pieces) {
    ASSERT_NE(nullptr, memory.allocate(bytes));
  }
  EXPECT_EQ(used, memory.used_bytes());
  EXPECT_EQ(nullptr, memory.allocate(kAreaBytes));
  close(file);
}

}  // namespace
}  // namespace headroom::direct
