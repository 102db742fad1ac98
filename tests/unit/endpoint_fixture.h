// Two endpoints in one process, for the tests of endpoints.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "direct/endpoint.h"

namespace headroom::direct {

struct Sent {
  Envelope envelope;
  uint32_t number;
  uint64_t bytes;
};

struct Asked {
  Receiving receiving;
  std::vector<char> buffer;
  bool matched = false;
  Sent expected = {};
};

inline void fill(std::vector<char>& buffer, uint32_t number) {
  for (size_t at = 0; at < buffer.size(); ++at) {
    buffer[at] = static_cast<char>(at * 13 + number);
  }
}

/// A receive has its message just if the model says so, and the right one.
inline void assert_as_expected(const Asked& one) {
  ASSERT_EQ(one.matched, one.receiving.complete.load());
  if (one.matched) {
    ASSERT_EQ(one.expected.bytes, one.receiving.bytes);
    ASSERT_EQ(one.expected.envelope.tag, one.receiving.tag);
    std::vector<char> expected(one.expected.bytes);
    fill(expected, one.expected.number);
    ASSERT_EQ(0, memcmp(expected.data(), one.buffer.data(), expected.size()));
  }
}

class Endpoints : public ::testing::Test {
 protected:
  void SetUp() override {
    file = memfd_create("messages", 0);
    ledger = static_cast<node::Ledger*>(
        mmap(nullptr, sizeof(node::Ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ledger->budget = kBudget;
    ledger->places = node::kFewestPlaces;
    node::note_used_places(*ledger, 2);
    ledger->free_bytes.store(kBudget);
    // Both see one mapping, and only the areas of these two: the thread sanitizer knows memory by its address, and has few.
    constexpr uint64_t kAlignment = 1 << 20;
    void* const place = mmap(nullptr, kMappedBytes + kAlignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(MAP_FAILED, place);
    mapped = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(place) + kAlignment) & ~(kAlignment - 1));
    ASSERT_EQ(0, ftruncate(file, kMappedBytes));
    ASSERT_NE(MAP_FAILED, mmap(mapped, kMappedBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, 0));
    for (int index = 0; index < 2; ++index) {
      ledger->members[index].pid.store(getpid());
      sessions[index].ledger = ledger;
      sessions[index].self = &ledger->members[index];
      sessions[index].index = index;
      sessions[index].messages_descriptor = file;
      ends[index] = std::make_unique<Endpoint>();
      ASSERT_TRUE(ends[index]->open(sessions[index], nullptr, 0, mapped));
    }
  }
  void TearDown() override {
    if (has_helper) {
      // It never ends, and may look once more at any time: what it looks at stays until the process ends.
      static std::unique_ptr<Endpoint>* kept = nullptr;  // reachable, and never destroyed
      kept = new std::unique_ptr<Endpoint>[2];
      kept[0] = std::move(ends[0]);
      kept[1] = std::move(ends[1]);
      return;
    }
    munmap(ledger, sizeof(node::Ledger));
    munmap(mapped, kMappedBytes);
    close(file);
  }

  SendOutcome send(int from, int32_t tag, std::vector<char>& content, bool synchronous, Sending*& sending) {
    return ends[from]->send(1 - from, {9, from, tag}, {content.data(), content.size(), nullptr},
                            synchronous ? SendKind::kSynchronous : SendKind::kStandard, 0, sending);
  }

  /// Takes all that has been sent to it.
  void take_all(int end) {
    while (ends[end]->progress()) {
    }
  }

  static constexpr int64_t kBudget = int64_t{1} << 30;
  static constexpr uint64_t kMappedBytes = 2 * kAreaBytes;
  bool has_helper = false;  // a thread that uses an endpoint (away.cc)
  int file = -1;
  char* mapped = nullptr;
  node::Ledger* ledger = nullptr;
  node::Session sessions[2];
  std::unique_ptr<Endpoint> ends[2];
};

}  // namespace headroom::direct
