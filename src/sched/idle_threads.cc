// See idle_threads.h.
#include "sched/idle_threads.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

#include "base/own_descriptors.h"
#include "base/own_threads.h"
#include "base/system_calls.h"
#include "pager/pager.h"
#include "sched/threads.h"
#include "trace/counters.h"

namespace headroom::sched {
namespace {

constexpr uint64_t kLookAgainNs = 2'000'000;
constexpr int kLooksAtUnknown = 10;  // in a row, before they count as idle: they may have had no core
constexpr uint64_t kNeedsSlotNs = 1'000'000'000;
constexpr uint64_t kForgottenNs = 3'000'000'000;

std::atomic<uint64_t> unknown_computed_at_ns{0};  // 0: none, or they are idle

// Under the lock.
base::FutexLock looking;
uint64_t looked_at_ns = 0;
uint64_t process_seen_ns = 0;  // of processor time, of all threads but the pager's
uint64_t waits_seen_ns = 0;    // for storage, of all threads
int idle_looks = 0;            // in a row

bool has_computed_within(uint64_t ns) {
  const uint64_t at = unknown_computed_at_ns.load(std::memory_order_relaxed);
  return at != 0 && base::monotonic_ns() < at + ns;
}

/// The time that was added since the last look, to a clock that several threads' clocks make up.
uint64_t since_last(uint64_t& seen, uint64_t now) {
  const uint64_t passed = now > seen ? now - seen : 0;
  seen = now;
  return passed;
}

/// Of all threads but the pager's.
uint64_t processor_ns_of_process() {
  timespec time = {};
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec * 1'000'000'000 + time.tv_nsec - pager::own_processor_ns());
}

/// Whether the thread would use a processor if it had one.
bool is_runnable(int32_t number) {
  char path[48];
  char text[512];
  (void)snprintf(path, sizeof path, "/proc/self/task/%d/stat", number);
  const int file = base::own(base::system_call(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
  if (file < 0) {
    return false;
  }
  const long bytes = base::system_call(SYS_read, file, text, sizeof text);
  base::close_own(file);
  const auto* end = bytes > 0 ? static_cast<const char*>(memrchr(text, ')', static_cast<size_t>(bytes))) : nullptr;
  return end != nullptr && end + 2 < text + bytes && end[2] == 'R';
}

bool some_wait_for_processor() {
  for (const MpiThread& thread : known_threads()) {
    if (thread.used.load(std::memory_order_acquire) && !thread.blocked.load(std::memory_order_acquire) &&
        is_runnable(thread.number.load(std::memory_order_relaxed))) {
      return true;
    }
  }
  return false;
}

struct Used {
  uint64_t blocked_ns;  // they poll
  uint64_t others_ns;
};

Used used_by_known_threads() {
  Used sum = {};
  for (MpiThread& thread : known_threads()) {
    timespec time = {};
    if (!thread.used.load(std::memory_order_acquire) || clock_gettime(thread.processor_time, &time) != 0) {
      continue;
    }
    uint64_t seen = thread.seen_ns.load(std::memory_order_relaxed);
    const uint64_t used =
        since_last(seen, static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec));
    thread.seen_ns.store(seen, std::memory_order_relaxed);
    (thread.blocked.load(std::memory_order_acquire) ? sum.blocked_ns : sum.others_ns) += used;
  }
  return sum;
}

/// With the lock held.
bool look_whether_idle() {
  const uint64_t now = base::monotonic_ns();
  if (is_any_unknown() || pager::accesses_wait() || now - looked_at_ns < kLookAgainNs) {
    return false;
  }
  const uint64_t passed = since_last(looked_at_ns, now);
  const uint64_t process_ns = since_last(process_seen_ns, processor_ns_of_process());
  const uint64_t waited_ns = since_last(waits_seen_ns, trace::counted(trace::Counter::kStorageWaitNs));
  const Used known = used_by_known_threads();
  uint64_t computed_at = unknown_computed_at_ns.load(std::memory_order_relaxed);
  const bool unknown_count = unknown_threads_compute();
  const uint64_t unblocked_ns = process_ns > known.blocked_ns ? process_ns - known.blocked_ns : 0;
  const uint64_t used_ns = waited_ns + (unknown_count ? unblocked_ns : known.others_ns);
  const bool idle = passed < kLookAgainNs * 10 && used_ns < passed / 20 && !some_wait_for_processor();
  idle_looks = idle ? idle_looks + 1 : 0;
  if (!idle || (unknown_count && idle_looks < kLooksAtUnknown)) {
    return false;
  }
  (void)unknown_computed_at_ns.compare_exchange_strong(computed_at, 0, std::memory_order_relaxed);  // unless one does by now
  return true;
}

}  // namespace

bool computes(int32_t number) {
  for (const MpiThread& thread : known_threads()) {
    if (thread.number.load(std::memory_order_relaxed) == number && thread.used.load(std::memory_order_acquire)) {
      return !thread.blocked.load(std::memory_order_acquire);
    }
  }
  return !base::is_own_thread(number) && !base::is_error(base::system_call(SYS_tgkill, getpid(), number, 0));
}

void note_unknown_computes() { unknown_computed_at_ns.store(base::monotonic_ns(), std::memory_order_relaxed); }

bool unknown_threads_compute() { return has_computed_within(kForgottenNs); }

bool unknown_threads_need_slot() { return has_computed_within(kNeedsSlotNs); }

bool other_threads_are_idle() {
  if (!looking.try_lock()) {
    return false;
  }
  const bool idle = look_whether_idle();
  looking.unlock();
  return idle;
}

}  // namespace headroom::sched
