// What the tests of pipes write and read: messages of many lengths, with content that tells where it comes from.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <random>
#include <vector>

#include "headroom/rpipe.h"
#include "rpipe_ranks.h"

namespace headroom::test {

inline rpipe_options options_with(uint32_t width = 0, uint64_t heap_bytes = 0, uint32_t policy = RPIPE_FIRST_FIT,
                                  uint32_t frees = RPIPE_FREES_BY_POLICY, uint32_t flags = 0) {
  rpipe_options options = {};
  options.size = sizeof options;
  options.width = width;
  options.heap_bytes = heap_bytes;
  options.policy = policy;
  options.frees = frees;
  options.flags = flags;
  return options;
}

inline size_t random_bytes(std::mt19937& random) {
  switch (random() % 8) {
    case 0:
      return 0;
    case 1:
      return 47 + random() % 3;
    case 2:
      return random() % 200'000;
    case 3:
      return 63 + random() % 3;
    default:
      return random() % 600;
  }
}

inline void fill(void* at, size_t bytes, uint32_t seed) {
  for (size_t each = 0; each < bytes; ++each) {
    static_cast<unsigned char*>(at)[each] = static_cast<unsigned char>(seed * 31 + each * 7);
  }
}

inline bool is_filled(const void* at, size_t bytes, uint32_t seed) {
  for (size_t each = 0; each < bytes; ++each) {
    if (static_cast<const unsigned char*>(at)[each] != static_cast<unsigned char>(seed * 31 + each * 7)) {
      return false;
    }
  }
  return true;
}

/// Messages of many lengths, which the reader frees in random order, keeping some for long.
inline void write_many(int self, rpipe_t pipe, int count, uint32_t seed) {
  std::mt19937 random(seed);
  for (int each = 0; each < count; ++each) {
    const size_t bytes = random_bytes(random);
    raddr_t buffer = 0;
    RANK_EXPECT(rpipe_alloc(pipe, bytes, &buffer, RPIPE_FOREVER) == 0);
    RANK_EXPECT(rpipe_of(buffer) == pipe);
    auto* const at = static_cast<char*>(rpipe_at(buffer));
    RANK_EXPECT(at != nullptr && reinterpret_cast<uintptr_t>(at) % (bytes >= 64 ? 64 : 16) == 0);
    if (random() % 7 == 0) {
      RANK_EXPECT(rpipe_free(buffer) == 0);
      RANK_EXPECT(rpipe_free(buffer) == -EALREADY);
      --each;
      continue;
    }
    fill(at, bytes, seed + static_cast<uint32_t>(each));
    RANK_EXPECT(rpipe_write(buffer, RPIPE_ALL, RPIPE_FOREVER) == 0);
    RANK_EXPECT(rpipe_at(buffer) == nullptr);
  }
}

inline void read_many(int self, rpipe_t pipe, int count, uint32_t seed, bool in_order) {
  std::mt19937 random(seed);
  std::mt19937 own(seed + 1);
  struct Held {
    raddr_t buffer;
    size_t bytes;
    uint32_t seed;
  };
  std::vector<Held> held;
  for (int each = 0; each < count; ++each) {
    size_t expected = random_bytes(random);
    while (random() % 7 == 0) {  // was taken back
      expected = random_bytes(random);
    }
    Held one = {0, 0, seed + static_cast<uint32_t>(each)};
    RANK_EXPECT(rpipe_read(pipe, &one.buffer, &one.bytes, RPIPE_FOREVER) == 0);
    RANK_EXPECT(one.bytes == expected);
    RANK_EXPECT(is_filled(rpipe_at(one.buffer), one.bytes, one.seed));
    held.push_back(one);
    while (held.size() > (in_order ? 0 : own() % 20)) {
      const auto which = static_cast<ptrdiff_t>(in_order ? 0 : own() % held.size());
      Held& gone = held[static_cast<size_t>(which)];
      RANK_EXPECT(is_filled(rpipe_at(gone.buffer), gone.bytes, gone.seed));
      fill(rpipe_at(gone.buffer), gone.bytes, 99);  // it is the reader's
      RANK_EXPECT(rpipe_free(gone.buffer) == 0);
      RANK_EXPECT(rpipe_free(gone.buffer) == -EALREADY);
      RANK_EXPECT(rpipe_at(gone.buffer) == nullptr);
      held.erase(held.begin() + which);
    }
  }
  for (const Held& one : held) {
    RANK_EXPECT(rpipe_free(one.buffer) == 0);
  }
}

/// On one node, and with each rank on another one, by the messages of a test or by libfabric's.
enum class Nodes { kOne, kSeveral, kByOfi };

class PipesOnNodes : public PipeRanks, public ::testing::WithParamInterface<Nodes> {
 protected:
  void SetUp() override {
    PipeRanks::SetUp();
    nodes = GetParam() == Nodes::kOne ? 1 : kMostPipeRanks;
    by_ofi = GetParam() == Nodes::kByOfi;
  }
};

#if defined(HEADROOM_OFI) && !defined(__SANITIZE_THREAD__)  // which does not know libfabric's locks
constexpr Nodes kAllNodes[] = {Nodes::kOne, Nodes::kSeveral, Nodes::kByOfi};
#else
constexpr Nodes kAllNodes[] = {Nodes::kOne, Nodes::kSeveral};
#endif
inline std::string name_of_nodes(const ::testing::TestParamInfo<Nodes>& each) {
  return each.param == Nodes::kOne ? "one" : each.param == Nodes::kSeveral ? "several" : "several_by_ofi";
}

}  // namespace headroom::test
