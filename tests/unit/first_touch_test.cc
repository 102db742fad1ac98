// Allocations whose first touch is watched: what is done to them with a lock that others need, too.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "environment.h"
#include "heap/heap.h"
#include "pager/pager.h"
#include "pager/transition_lock.h"

namespace headroom::pager {
namespace {

constexpr uint64_t kLarge = 32 << 20;
constexpr int kSignals = 1000;
constexpr uint64_t kPatienceNs = 20'000'000'000;

std::atomic<int> handled{0};

/// As who holds memory while the process arms, and who locks memory.
void need_the_lock(int) {
  const TransitionHolder lock;
  handled.fetch_add(1, std::memory_order_relaxed);
}

TEST(FirstTouch, AHandlerDoesNotWaitForTheAllocationThatItInterrupts) {
  setenv("HEADROOM_HUGE_PAGES", "never", 1);  // so that they are watched whatever the system does
  test::set_environment("256M", "auto");
  ASSERT_EQ(start(), base::Status::kOk);
  const void* memory = heap::allocate(kLarge, 1, false);
  ASSERT_NE(memory, nullptr);
  struct sigaction action = {};
  action.sa_handler = need_the_lock;
  ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
  const pthread_t self = pthread_self();
  std::thread other([self] {
    const uint64_t begin = base::monotonic_ns();
    while (handled.load(std::memory_order_relaxed) < kSignals) {
      pthread_kill(self, SIGUSR1);
      usleep(50);
      if (base::monotonic_ns() - begin > kPatienceNs) {
        fprintf(stderr, "the handler waits\n");  // with all signals blocked, so that no alarm would end it
        _exit(1);
      }
    }
  });
  while (handled.load(std::memory_order_relaxed) < kSignals) {
    look_for_first_touch(memory, kLarge);
  }
  other.join();
}

}  // namespace
}  // namespace headroom::pager
