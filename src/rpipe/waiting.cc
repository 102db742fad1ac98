// See waiting.h.
#include "rpipe/waiting.h"

#include <sched.h>

#include <algorithm>

#include "rpipe/mirror.h"

namespace headroom::rpipe {

namespace {

constexpr uint32_t kSpins = 2000;   // of one pause instruction each: about 50 us
constexpr uint32_t kYields = 8000;  // of about half a microsecond; to wake an idle virtual processor takes 25 us
constexpr uint32_t kFewSpins = 20;  // where others need the processor
constexpr uint32_t kFewYields = 4;
constexpr uint32_t kLooksPerClock = 64;  // the clock costs as much as some looks
constexpr int64_t kLongestSleepNs = 100'000'000;
constexpr int64_t kLongestSleepOfPollersNs = 500'000;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

bool Waiter::is_patient() const { return looks_ >= (is_oversubscribed() ? kFewSpins : kSpins) + kFewYields; }

void Waiter::sleep(int64_t most_ns) {
  const bool polls = has_mirrors.load(std::memory_order_relaxed);
  host_wait_.begin();
  base::futex_wait(&own_root().bell, bell_, std::min(most_ns, polls ? kLongestSleepOfPollersNs : kLongestSleepNs), true);
  ++sleeps_;
  is_long_ = true;
}

int Waiter::pause() {
  if (timeout_ns_ == RPIPE_NOWAIT) {
    return -EAGAIN;
  }
  const uint32_t spins = is_oversubscribed() ? kFewSpins : kSpins;
  ++looks_;
  if (looks_ < spins && (timeout_ns_ < 0 || looks_ % kLooksPerClock != 0)) {
    relax();
    return 0;
  }
  int64_t left = INT64_MAX;
  if (timeout_ns_ > 0) {
    const uint64_t now = base::monotonic_ns();
    began_ns_ = began_ns_ == 0 ? now : began_ns_;
    left = timeout_ns_ - static_cast<int64_t>(now - began_ns_);
    if (left <= 0) {
      return -ETIMEDOUT;
    }
  }
  if (looks_ < spins) {
    return 0;
  }
  is_long_ = false;
  if (looks_ < spins + (is_oversubscribed() ? kFewYields : kYields)) {
    sched_yield();
    return 0;
  }
  if (announced_) {
    sleep(left);
  }
  // Announced anew each time: the word is one for all threads, and the peer that rang has taken it back. Nobody else takes it
  // back: another thread may sleep by it.
  bell_ = own_root().bell.load(std::memory_order_acquire);
  own_root().sleeps.fetch_or(kAsleep, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the one in ring()
  announced_ = true;
  return 0;
}

}  // namespace headroom::rpipe
