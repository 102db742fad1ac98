// See busy_threads.h.
#include "sched/busy_threads.h"

#include <time.h>

#include <atomic>

#include "base/system_calls.h"
#include "pager/pager.h"

namespace headroom::sched {
namespace {

constexpr uint64_t kShortestNs = 5'000'000;  // the scheduler's clock ticks every few milliseconds

std::atomic<uint64_t> began_ns{0};
std::atomic<int64_t> used_before_ns{0};
std::atomic<uint32_t> last{1};

/// By the program's threads and those of its libraries; the pager's are not the program's affair.
int64_t processor_ns() {
  timespec time = {};
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec - pager::own_processor_ns();
}

}  // namespace

uint32_t busy_threads_of(int64_t used_ns, uint64_t passed_ns, uint32_t before) {
  if (passed_ns < kShortestNs) {
    return before;
  }
  const auto wall = static_cast<int64_t>(passed_ns);
  const int64_t busy = (used_ns + wall / 2) / wall;
  return busy > 0 ? static_cast<uint32_t>(busy) : 1;
}

void begin_counting_busy_threads() {
  used_before_ns.store(processor_ns(), std::memory_order_relaxed);
  began_ns.store(base::monotonic_ns(), std::memory_order_relaxed);
}

uint32_t busy_threads() {
  const uint64_t passed = base::monotonic_ns() - began_ns.load(std::memory_order_relaxed);
  const int64_t used = processor_ns() - used_before_ns.load(std::memory_order_relaxed);
  last.store(busy_threads_of(used, passed, last.load(std::memory_order_relaxed)), std::memory_order_relaxed);
  return last.load(std::memory_order_relaxed);
}

}  // namespace headroom::sched
