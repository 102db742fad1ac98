// What happens to a block of single pages while some of them are being written out, which the disk takes its time for: the
// program writes to the same page or reads another, holds one for the kernel, or gives the block up. Nothing is lost, and
// nothing that was given up comes back.
#include <gtest/gtest.h>
#include <string.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>
#include <tuple>
#include <vector>

#include "block_array.h"
#include "environment.h"
#include "heap/heap.h"
#include "pager/present_pages.h"
#include "pager/single_pages.h"
#include "pager/state.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using trace::counted;
using trace::Counter;

constexpr uint64_t kBlocks = 384;  // 96 MiB in 24 MiB; the first third is looked at, the others press
constexpr uint64_t kLooked = kBlocks / 3;
constexpr uint64_t kPages = arena::kBlockBytes / arena::kPageBytes;
constexpr uint64_t kPageWords = arena::kPageBytes / 8;
constexpr int kTimes = 60;

enum class Deed : uint8_t { kWrite, kReadAnother, kHoldAndWrite, kGiveUp };

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 7919 + 88172645463325252U) {}
  uint64_t below(uint64_t limit) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ % limit;
  }

 private:
  uint64_t state_;
};

/// Of each page the first word is used.
class Array : public test::BlockArray {
 public:
  Array() : BlockArray(kBlocks) {}
  [[nodiscard]] volatile uint64_t& word(uint64_t number, uint64_t page) const { return block(number)[page * kPageWords]; }
  [[nodiscard]] bool has_pages_on_their_way(uint64_t number) const {
    return state_of(number) == arena::kSinglePages && pages_are_moving(index_of(number));
  }
};

/// Jumps about in the last two thirds, so that the others must leave.
void press(const Array& array, const std::atomic<bool>& ends) {
  Random random(1);
  while (!ends.load()) {
    EXPECT_EQ(array.word(kLooked + random.below(kBlocks - kLooked), random.below(kPages)), 0U);
  }
}

class SinglePagesDuringWriteOut : public testing::TestWithParam<std::tuple<const char*, Deed>> {};

TEST_P(SinglePagesDuringWriteOut, NothingIsLostAndNothingComesBack) {
  const auto [name, deed] = GetParam();
  if (make_userfaultfd_engine(strcmp(name, "userfaultfd-user") == 0) == nullptr) {
    GTEST_SKIP() << "the kernel refuses this engine here";
  }
  setenv("HEADROOM_STORE_FAULT", "late:500", 1);
  test::set_environment("24M", name);
  ASSERT_EQ(start(), base::Status::kOk);
  const Array array;
  for (uint64_t block = kLooked; block < kBlocks; ++block) {
    (&array.word(block, 0))[1] = 1;  // so that it goes to storage, and its pages are read from there
  }
  std::vector<std::array<uint64_t, kPages>> expected(kLooked);
  uint64_t next = 0;
  const auto write = [&](uint64_t block, uint64_t page) { array.word(block, page) = expected[block][page] = ++next; };
  for (uint64_t block = 0; block < kLooked; ++block) {
    write(block, 0);
    write(block, kPages - 1);
  }
  std::atomic<bool> ends{false};
  std::thread presser(press, std::cref(array), std::cref(ends));
  Random random(2);
  int done = 0;
  for (uint64_t round = 0; done < kTimes && round < 4'000'000'000; ++round) {
    const uint64_t block = random.below(kLooked);
    const uint64_t page = random.below(kPages);
    if (!array.has_pages_on_their_way(block)) {
      if (round % 64 == 0) {
        write(block, page);
      }
      continue;
    }
    ++done;
    switch (deed) {
      case Deed::kWrite:
        for (uint64_t each = 0; each < kPages; ++each) {
          if (expected[block][each] != 0) {
            write(block, each);
            break;
          }
        }
        break;
      case Deed::kReadAnother:
        EXPECT_EQ(array.word(block, page), expected[block][page]);
        break;
      case Deed::kHoldAndWrite: {
        auto* const held = const_cast<uint64_t*>(&array.word(block, page));
        hold(held, 8, true);
        write(block, page);
        drop_hold(held, 8, true);
        break;
      }
      case Deed::kGiveUp:
        heap::zero(const_cast<uint64_t*>(&array.word(block, 0)), arena::kBlockBytes);
        expected[block].fill(0);
        break;
    }
  }
  EXPECT_EQ(done, kTimes);
  ends.store(true);
  presser.join();
  for (int round = 0; round < 2; ++round) {
    for (uint64_t block = 0; block < kLooked; ++block) {
      for (uint64_t page = 0; page < kPages; ++page) {
        ASSERT_EQ(array.word(block, page), expected[block][page]) << block << ' ' << page;
      }
    }
  }
  EXPECT_GT(counted(Counter::kSinglePagesRead), 0U);
  EXPECT_GT(counted(Counter::kSinglePagesWritten), static_cast<uint64_t>(kTimes / 2));
  EXPECT_TRUE(test::invariants_hold());
}

INSTANTIATE_TEST_SUITE_P(Deeds, SinglePagesDuringWriteOut,
                         testing::Combine(testing::Values("userfaultfd", "userfaultfd-user"),
                                          testing::Values(Deed::kWrite, Deed::kReadAnother, Deed::kHoldAndWrite,
                                                          Deed::kGiveUp)),
                         [](const auto& instance) {
                           const Deed deed = std::get<1>(instance.param);
                           std::string engine = std::get<0>(instance.param);
                           std::erase(engine, '-');
                           return engine + (deed == Deed::kWrite         ? "Written"
                                            : deed == Deed::kReadAnother ? "Read"
                                            : deed == Deed::kGiveUp      ? "GivenUp"
                                                                         : "Held");
                         });

}  // namespace
}  // namespace headroom::pager
