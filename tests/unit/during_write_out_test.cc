// What happens to a block while it is being written out, which the disk takes its time for: the program writes to it, holds it
// for the kernel, or gives it up. Nothing is lost, and nothing that was given up comes back.
#include <gtest/gtest.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <tuple>
#include <vector>

#include "block_array.h"
#include "environment.h"
#include "heap/heap.h"
#include "pager/state.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using trace::counted;
using trace::Counter;

constexpr uint64_t kBlocks = 256;  // 64 MiB in 24 MiB; the first half is looked at, the other half presses
constexpr uint64_t kWords = arena::kBlockBytes / 8;
constexpr int kTimes = 60;

enum class Deed : uint8_t { kWrite, kHoldAndWrite, kGiveUp };

using Array = test::BlockArray;

/// Goes over the second half, so that the first must leave: all pages of it, of which a few alone would fit.
void press(const Array& array, const std::atomic<bool>& ends) {
  for (uint64_t round = 1; !ends.load(); ++round) {
    for (uint64_t number = kBlocks / 2; number < kBlocks && !ends.load(); ++number) {
      for (uint64_t word = 0; word < kWords; word += arena::kPageBytes / 8) {
        array.block(number)[word] = number + round;
      }
    }
  }
}

class DuringWriteOut : public testing::TestWithParam<std::tuple<const char*, Deed>> {};

TEST_P(DuringWriteOut, NothingIsLostAndNothingComesBack) {
  const auto [name, deed] = GetParam();
  const bool user_mode = strcmp(name, "userfaultfd-user") == 0;
  if (strcmp(name, "sigsegv") != 0 && make_userfaultfd_engine(user_mode) == nullptr) {
    GTEST_SKIP() << "the kernel refuses this engine here";
  }
  setenv("HEADROOM_STORE_FAULT", "late:2000", 1);
  test::set_environment("24M", name);
  ASSERT_EQ(start(), base::Status::kOk);
  const Array array(kBlocks);
  std::vector<uint64_t> first(kBlocks / 2);  // the first word of each block as it must be, and the last
  std::vector<uint64_t> last(kBlocks / 2);
  uint64_t next = 0;
  const auto dirty = [&](uint64_t number) {
    for (uint64_t page = 0; page < kWords; page += arena::kPageBytes / 8) {
      array.block(number)[page + 1] = 1;  // few pages alone would stay (hollow_blocks.h)
    }
    array.block(number)[0] = first[number] = ++next;
    array.block(number)[kWords - 1] = last[number] = ++next;
  };
  for (uint64_t number = 0; number < kBlocks / 2; ++number) {
    dirty(number);
  }
  std::atomic<bool> ends{false};
  std::thread presser(press, std::cref(array), std::cref(ends));
  int done = 0;
  for (uint64_t number = 0; done < kTimes; number = (number + 1) % (kBlocks / 2)) {
    volatile uint64_t* words = array.block(number);
    if (array.state_of(number) != arena::kWriting) {
      if (number % 16 == 0) {
        dirty(number + static_cast<uint64_t>(done) % 16);
      }
      continue;
    }
    ++done;
    switch (deed) {
      case Deed::kWrite:
        words[0] = first[number] = ++next;
        break;
      case Deed::kHoldAndWrite:
        hold(const_cast<uint64_t*>(words), 8, true);
        words[0] = first[number] = ++next;
        drop_hold(const_cast<uint64_t*>(words), 8, true);
        break;
      case Deed::kGiveUp:
        heap::zero(const_cast<uint64_t*>(words), arena::kBlockBytes);
        first[number] = last[number] = 0;
        break;
    }
  }
  ends.store(true);
  presser.join();
  for (int round = 0; round < 2; ++round) {
    for (uint64_t number = 0; number < kBlocks / 2; ++number) {
      EXPECT_EQ(array.block(number)[0], first[number]) << number;
      EXPECT_EQ(array.block(number)[kWords - 1], last[number]) << number;
    }
  }
  if (deed == Deed::kGiveUp) {
    EXPECT_GE(counted(Counter::kBlocksDiscarded), static_cast<uint64_t>(kTimes));
  } else {
    EXPECT_GE(counted(Counter::kEvictionsGivenUp), static_cast<uint64_t>(kTimes / 2));  // some were over by then
  }
  EXPECT_TRUE(test::invariants_hold());
}

INSTANTIATE_TEST_SUITE_P(Deeds, DuringWriteOut,
                         testing::Combine(testing::Values("userfaultfd", "userfaultfd-user", "sigsegv"),
                                          testing::Values(Deed::kWrite, Deed::kHoldAndWrite, Deed::kGiveUp)),
                         [](const auto& instance) {
                           const Deed deed = std::get<1>(instance.param);
                           std::string engine = std::get<0>(instance.param);
                           std::erase(engine, '-');
                           return engine + (deed == Deed::kWrite ? "Written" : deed == Deed::kGiveUp ? "GivenUp" : "Held");
                         });

}  // namespace
}  // namespace headroom::pager
