// A signal handler of the program's leaves an access that waits for storage by a jump, as an alarm's does that gives up
// waiting. The pager answers later; by then the stack belongs to somebody else.
#include <gtest/gtest.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "environment.h"
#include "heap/heap.h"
#include "pager/state.h"
#include "pager/waiting_accesses.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

constexpr uint64_t kArray = 64 << 20;
constexpr int kJumps = 12;

sigjmp_buf back;
volatile sig_atomic_t is_waiting = 0;

void give_up(int) {
  if (is_waiting != 0) {
    is_waiting = 0;
    siglongjmp(back, 1);
  }
}

/// Whether the access was given up.
__attribute__((noinline)) bool gives_up(const volatile uint64_t* word, uint64_t expected) {
  if (sigsetjmp(back, 1) != 0) {
    return true;
  }
  const itimerval soon = {{0, 0}, {0, 2000}};
  setitimer(ITIMER_REAL, &soon, nullptr);
  is_waiting = 1;
  const uint64_t found = *word;
  is_waiting = 0;
  EXPECT_EQ(found, expected);
  return false;
}

/// Uses the stack, as whatever is called next would, until the answer has come.
__attribute__((noinline)) bool keeps_its_stack() {
  volatile unsigned char stack[128 << 10];
  for (volatile unsigned char& byte : stack) {
    byte = 0xa5;
  }
  const uint64_t since = base::monotonic_ns();
  while (base::monotonic_ns() - since < 60'000'000) {
    usleep(1000);
  }
  for (const volatile unsigned char& byte : stack) {
    if (byte != 0xa5) {
      return false;
    }
  }
  return true;
}

TEST(AbandonedRequest, TheAnswerDoesNotGoToAStackThatIsUsedAgain) {
  setenv("HEADROOM_STORE_FAULT", "slow:30000:0", 1);
  test::set_environment("24M", "sigsegv");
  ASSERT_EQ(start(), base::Status::kOk);
  auto* array = static_cast<uint64_t*>(heap::allocate(kArray, 1, false));
  ASSERT_NE(array, nullptr);
  for (uint64_t index = 0; index < kArray / 8; ++index) {
    array[index] = index + 1;
  }
  ASSERT_TRUE(is_armed());
  signal(SIGALRM, give_up);
  int given_up = 0;
  for (uint64_t index = 0; index < kArray / 8 && given_up < kJumps; index += (2 << 20) / 8) {
    if (gives_up(array + index, index + 1)) {
      ++given_up;
      EXPECT_TRUE(keeps_its_stack());
    }
  }
  EXPECT_GT(given_up, 0);
  for (uint64_t index = 0; index < kArray / 8; index += (8 << 20) / 8) {
    EXPECT_EQ(array[index], index + 1);
  }
}

/// Stands for the pager's thread: who asks with `block` 1 is made to jump before he is answered.
void answer(pthread_t asker, const std::atomic<int>& jumped, const std::atomic<bool>& ends) {
  for (int sent = 0; !ends.load();) {
    Request* request = next_request();
    if (request == nullptr) {
      std::this_thread::yield();
      continue;
    }
    if (request->block == 1) {
      pthread_kill(asker, SIGALRM);
      for (++sent; jumped.load() < sent && !ends.load();) {
        std::this_thread::yield();
      }
    }
    finish(*request, request->block == 1 ? base::Status::kOk : base::Status::kUnavailable);
  }
}

TEST(AbandonedRequest, SlotsOfThoseWhoJumpedAreUsedAgain) {
  ASSERT_TRUE(open_request_descriptor().ok());
  signal(SIGALRM, give_up);
  std::atomic<int> jumped{0};
  std::atomic<bool> ends{false};
  std::thread pager(answer, pthread_self(), std::cref(jumped), std::cref(ends));
  static Request request;  // not changed between sigsetjmp() and the jump
  while (jumped.load() < kMostRequests + kJumps) {
    if (sigsetjmp(back, 1) != 0) {
      jumped.fetch_add(1);
      continue;
    }
    request = {};
    request.block = 1;
    is_waiting = 1;
    perform(request);
    FAIL() << "nobody jumped";
  }
  request = {};
  perform(request);
  EXPECT_EQ(request.status, base::Status::kUnavailable);
  ends.store(true);
  pager.join();
}

}  // namespace
}  // namespace headroom::pager
