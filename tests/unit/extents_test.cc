// The allocator of extents against a simple model: random allocations, partial frees and resizes never overlap, keep their
// content, and leave no claim behind.
#include "heap/extents.h"

#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>

#include <map>
#include <random>

#include "environment.h"
#include "heap/heap.h"
#include "pager/pager.h"
#include "seed.h"

namespace headroom::heap {
namespace {

void random_walk(const char* memory, const char* engine, int steps) {
  test::set_environment(memory, engine);
  ASSERT_EQ(pager::start(), base::Status::kOk);
  std::mt19937 random(headroom::test::seed_of(7));
  struct Piece {
    uint64_t bytes;
    unsigned char fill;
  };
  std::map<char*, Piece> live;
  uint64_t total = 0;
  const auto check = [](const char* at, const Piece& piece) {
    for (uint64_t byte = 0; byte < piece.bytes; byte += 1021) {
      ASSERT_EQ(static_cast<unsigned char>(at[byte]), piece.fill) << "at " << byte << " of " << piece.bytes;
    }
  };
  for (int step = 0; step < steps; ++step) {
    const bool grow = live.empty() || (total < (48U << 20) && random() % 2 == 0);
    if (grow) {
      const uint64_t bytes = 4096 + random() % (3 << 20);
      const bool zeroed = random() % 2 == 0;
      const uint64_t alignment = random() % 4 == 0 ? uint64_t{1} << (12 + random() % 10) : 1;
      auto* at = static_cast<char*>(allocate(bytes, alignment, zeroed));
      ASSERT_NE(at, nullptr);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(at) % alignment, 0U);
      if (zeroed) {
        check(at, {bytes, 0});
      }
      const auto after = live.lower_bound(at);
      ASSERT_TRUE(after == live.end() || at + bytes <= after->first) << "overlaps what follows";
      ASSERT_TRUE(after == live.begin() || std::prev(after)->first + std::prev(after)->second.bytes <= at);
      live[at] = {bytes, static_cast<unsigned char>(1 + random() % 255)};
      memset(at, live[at].fill, bytes);
      total += bytes;
      continue;
    }
    auto chosen = std::next(live.begin(), static_cast<long>(random() % live.size()));
    check(chosen->first, chosen->second);
    total -= chosen->second.bytes;
    if (random() % 3 == 0) {
      const uint64_t bytes = 4096 + random() % (3 << 20);
      if (resize_in_place(chosen->first, bytes)) {
        const uint64_t kept = bytes < chosen->second.bytes ? bytes : chosen->second.bytes;
        check(chosen->first, {kept, chosen->second.fill});
        chosen->second.bytes = bytes;
        memset(chosen->first, chosen->second.fill, bytes);
      }
      total += chosen->second.bytes;
      continue;
    }
    release(chosen->first, chosen->second.bytes, random() % 2 == 0);
    live.erase(chosen);
  }
  for (const auto& [at, piece] : live) {
    check(at, piece);
    release(at, piece.bytes, false);
  }
}

TEST(Extents, RandomWalkInMemory) {
  random_walk("512M", "auto", 3000);
  EXPECT_FALSE(pager::is_armed());
  trim_kept_extents();
  EXPECT_EQ(test::claimed_bytes(), 0) << "every claim was given back";
  EXPECT_TRUE(node::check_invariants(*pager::session().ledger));
}

TEST(Extents, RandomWalkShortOfMemory) {
  random_walk("16M", "auto", 600);
  EXPECT_TRUE(pager::is_armed());
  EXPECT_TRUE(test::invariants_hold());
}

TEST(Extents, RandomWalkShortOfMemoryWithSignals) {
  random_walk("16M", "sigsegv", 300);
  EXPECT_TRUE(pager::is_armed());
  EXPECT_TRUE(test::invariants_hold());
}

TEST(Extents, MiddleOfAnAllocationCanBeFreed) {
  test::set_environment("64M", "auto");
  ASSERT_EQ(pager::start(), base::Status::kOk);
  auto* at = static_cast<char*>(allocate(8 << 20, 1, false));
  memset(at, 7, 8 << 20);
  release(at + (2 << 20), 4 << 20, false);
  EXPECT_EQ(at[(2 << 20) - 1], 7);
  EXPECT_EQ(at[6 << 20], 7);
  EXPECT_EQ(test::claimed_bytes(), 4 << 20);
}

TEST(Extents, PartitionsKeepOutOfTheGaps) {
  for (const int places : {node::kFewestPlaces, 2 * node::kFewestPlaces, node::kMaxMembers}) {
    arena::lay_out_partitions(static_cast<uint32_t>(places));
    EXPECT_EQ(arena::partition_bytes(), arena::kPartitionBytes * node::kFewestPlaces / static_cast<uint64_t>(places));
    uintptr_t end = 0;
    for (int index = 0; index < places; ++index) {
      const uintptr_t base = arena::partition_base(index);
      EXPECT_GE(base, end) << index;
      end = base + arena::partition_bytes();
      EXPECT_EQ(arena::partition_at(base), index);
      EXPECT_EQ(arena::partition_at(end - 1), index);
      for (const arena::AddressGap& gap : arena::kAddressGaps) {
        EXPECT_TRUE(end <= gap.begin || base >= gap.end) << index;
      }
    }
    for (const arena::AddressGap& gap : arena::kAddressGaps) {
      EXPECT_EQ(arena::partition_at(gap.begin), -1);
      EXPECT_EQ(arena::partition_at(gap.end - 1), -1);
    }
    EXPECT_EQ(arena::partition_at(arena::partition_base(0) - 1), -1);
    EXPECT_EQ(arena::partition_at(end), -1);
    EXPECT_EQ(arena::partition_at(UINTPTR_MAX), -1);
  }
  arena::lay_out_partitions(node::kFewestPlaces);
}

TEST(Extents, AddressesThatAreGivenUpAreOthers) {
  test::set_environment("64M", "auto");
  ASSERT_EQ(pager::start(), base::Status::kOk);
  constexpr uint64_t kMiB = 1 << 20;
  auto* at = static_cast<char*>(allocate(16 * kMiB, 1, false));
  memset(at, 7, 16 * kMiB);
  EXPECT_FALSE(give_addresses_up(at + kMiB)) << "in use";
  EXPECT_FALSE(give_addresses_up(at + arena::kPartitionBytes)) << "not ours";
  EXPECT_FALSE(give_addresses_up(at + 512 * kMiB)) << "too little would be left";
  char* const others = at + 1032 * kMiB + arena::kBlockBytes / 2;
  ASSERT_TRUE(give_addresses_up(others));
  EXPECT_FALSE(give_addresses_up(others)) << "not ours any longer";
  void* const mapped = mmap(others, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(mapped, others);
  memset(mapped, 8, kMiB);
  EXPECT_FALSE(owns(others));
  EXPECT_FALSE(allocate_at(others - kMiB, 2 * kMiB)) << "partly theirs";
  EXPECT_EQ(allocate(1032 * kMiB, 1, false), nullptr) << "what is left does not suffice";
  auto* more = static_cast<char*>(allocate(32 * kMiB, 1, false));
  ASSERT_NE(more, nullptr);
  memset(more, 9, 32 * kMiB);
  EXPECT_EQ(at[16 * kMiB - 1], 7);
  EXPECT_EQ(static_cast<char*>(mapped)[kMiB - 1], 8);
  munmap(mapped, kMiB);
}

/// A mapping at a fixed place over memory of which a part is in use, a part free, and a part kept for reuse.
TEST(Extents, AFixedPlaceTakesWhatIsThere) {
  test::set_environment("64M", "auto");
  ASSERT_EQ(pager::start(), base::Status::kOk);
  constexpr uint64_t kMiB = 1 << 20;
  auto* at = static_cast<char*>(allocate(16 * kMiB, 1, false));
  memset(at, 7, 16 * kMiB);
  release(at + 2 * kMiB, 2 * kMiB + 4096, false);
  release(at + 8 * kMiB + 4096, 3 * kMiB, true);
  ASSERT_TRUE(allocate_at(at + 3 * kMiB, 7 * kMiB));
  for (uint64_t byte = 0; byte < 16 * kMiB; byte += 4096) {
    const bool mapped_anew = byte >= 3 * kMiB && byte < 10 * kMiB;
    const bool in_use = byte < 2 * kMiB || mapped_anew || byte > 11 * kMiB;
    if (in_use) {
      ASSERT_EQ(at[byte], mapped_anew ? 0 : 7) << byte / 4096;
    }
  }
  memset(at + 3 * kMiB, 8, 7 * kMiB);
  ASSERT_TRUE(allocate_at(at + 100 * kMiB, kMiB)) << "beyond what was ever used";
  EXPECT_EQ(at[100 * kMiB], 0);
  release(at, 16 * kMiB, false);
  release(at + 100 * kMiB, kMiB, false);
  ASSERT_TRUE(allocate_at(at + 90 * kMiB, 20 * kMiB)) << "partly at the free end, partly beyond it";
  release(at + 90 * kMiB, 20 * kMiB, false);
  trim_kept_extents();
  EXPECT_EQ(test::claimed_bytes(), 0) << "every claim was given back";
  EXPECT_FALSE(allocate_at(at + arena::kPartitionBytes, kMiB)) << "outside the partition";
}

}  // namespace
}  // namespace headroom::heap
