// The lock of those that call: one thread alone at first, then others too. What it protects is not atomic, so two threads that
// were inside at once would lose counts (and the thread sanitizer would say so).
#include "base/threads_lock.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace headroom::base {
namespace {

TEST(ThreadsLock, OneThreadIsAloneUntilAnotherComes) {
  CallingThreads threads;
  EXPECT_FALSE(threads.may_be_several());
  threads.expect_several();
  EXPECT_TRUE(threads.may_be_several());
  if (threads.are_several()) {
    GTEST_SKIP() << "the kernel has no membarrier";
  }
  ThreadsLock lock;
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(lock.enter(threads));
    lock.leave(true);
  }
  EXPECT_FALSE(lock.enter(threads, false));
  lock.leave(false);
  std::thread([&] {
    EXPECT_FALSE(lock.enter(threads));
    lock.leave(false);
  }).join();
  EXPECT_TRUE(threads.are_several());
  EXPECT_FALSE(lock.enter(threads));
  lock.leave(false);
}

// The moment at which the second thread comes is what matters, so there are many of them.
TEST(ThreadsLock, NobodyIsInsideBesideAnother) {
  constexpr int kRounds = 500;
  constexpr int kOthers = 2;
  constexpr uint64_t kTimes = 200;
  for (int round = 0; round < kRounds; ++round) {
    CallingThreads threads;
    threads.expect_several();
    ThreadsLock lock;
    uint64_t count = 0;
    std::atomic<uint64_t> counted_alone = 0;
    std::atomic<bool> over = false;
    const auto add = [&](uint64_t times) {
      for (uint64_t time = 0; time < times; ++time) {
        const bool alone = lock.enter(threads);
        ++count;
        lock.leave(alone);
        if (alone) {
          counted_alone.store(time, std::memory_order_relaxed);
        }
      }
    };
    std::vector<std::thread> others;
    others.reserve(kOthers);
    for (int other = 0; other < kOthers; ++other) {
      others.emplace_back([&] {
        while (counted_alone.load(std::memory_order_relaxed) < static_cast<uint64_t>(round) && !over.load()) {
        }
        add(kTimes);
      });
    }
    add(kRounds + kTimes);
    over.store(true);
    for (std::thread& thread : others) {
      thread.join();
    }
    ASSERT_EQ(kRounds + kTimes + kOthers * kTimes, count) << "round " << round;
  }
}

}  // namespace
}  // namespace headroom::base
