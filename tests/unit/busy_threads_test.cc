// How many threads were busy in a turn, from the processor time that was used: a rank gets as many slots in its next one. (That
// it does so in a job: test_ranks_hold_as_many_slots_as_threads_are_busy, where the machine leaves the threads their cores.)
#include "sched/busy_threads.h"

#include <gtest/gtest.h>
#include <time.h>

#include <thread>

#include "base/system_calls.h"

namespace headroom::sched {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(BusyThreads, AreTheNearestNumberAndAtLeastOne) {
  EXPECT_EQ(busy_threads_of(0, 100 * kMs, 7), 1U);     // it waited
  EXPECT_EQ(busy_threads_of(-kMs, 100 * kMs, 7), 1U);  // the pager's thread is taken off
  EXPECT_EQ(busy_threads_of(100 * kMs, 100 * kMs, 7), 1U);
  EXPECT_EQ(busy_threads_of(149 * kMs, 100 * kMs, 7), 1U);
  EXPECT_EQ(busy_threads_of(150 * kMs, 100 * kMs, 7), 2U);
  EXPECT_EQ(busy_threads_of(200 * kMs, 100 * kMs, 7), 2U);
  EXPECT_EQ(busy_threads_of(1580 * kMs, 100 * kMs, 7), 16U);
}

TEST(BusyThreads, AShortTurnSaysNothing) {
  EXPECT_EQ(busy_threads_of(16 * kMs, 4 * kMs, 3), 3U);
  EXPECT_EQ(busy_threads_of(16 * kMs, 5 * kMs, 1), 3U);
}

void spin(uint64_t ns) {
  timespec begin = {};
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  do {
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  } while (static_cast<uint64_t>((now.tv_sec - begin.tv_sec) * 1'000'000'000 + now.tv_nsec - begin.tv_nsec) < ns);
}

/// However busy the machine is: what two threads used is between what it measures before and after.
TEST(BusyThreads, ProcessorTimeOfAllThreadsCounts) {
  for (int round = 0; round < 3; ++round) {
    timespec before = {};
    timespec after = {};
    const uint64_t began = base::monotonic_ns();
    begin_counting_busy_threads();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    std::thread other(spin, 100 * kMs);
    spin(100 * kMs);
    other.join();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    const uint64_t passed = base::monotonic_ns() - began;
    const uint32_t busy = busy_threads();
    const int64_t used = (after.tv_sec - before.tv_sec) * 1'000'000'000 + after.tv_nsec - before.tv_nsec;
    EXPECT_GE(used, 200 * kMs);
    EXPECT_GE(busy, busy_threads_of(used - 20 * kMs, passed + 20 * kMs, 0));
    EXPECT_LE(busy, busy_threads_of(used + 20 * kMs, passed - 20 * kMs, 0));
  }
}

}  // namespace
}  // namespace headroom::sched
