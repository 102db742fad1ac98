// See threads.h.
#include "sched/threads.h"

#include <pthread.h>
#include <time.h>

#include <atomic>

#include "base/system_calls.h"

namespace headroom::sched {
namespace {

constexpr uint64_t kLookAgainNs = 2'000'000;

struct MpiThread {
  std::atomic<bool> used;
  std::atomic<bool> blocked;
  clockid_t processor_time;
  uint64_t seen_ns;  // of processor time, when the threads were last looked at; under the lock
};
constexpr int kMostThreads = 256;
MpiThread mpi_threads[kMostThreads];
std::atomic<int> uncounted_threads{0};  // more than that: they count as busy
uint64_t looked_at_ns = 0;              // under the lock
base::FutexLock threads_lock;
constexpr int kUnknownThread = -1;
constexpr int kUncountedThread = -2;
thread_local int this_thread __attribute__((tls_model("initial-exec"))) = kUnknownThread;
thread_local bool blocks __attribute__((tls_model("initial-exec"))) = false;

void thread_ends(void*) {
  if (this_thread == kUncountedThread) {
    uncounted_threads.fetch_sub(1, std::memory_order_relaxed);
  } else {
    mpi_threads[this_thread].used.store(false, std::memory_order_release);
  }
}

void register_thread() {
  static const pthread_key_t key = [] {
    pthread_key_t made = 0;
    pthread_key_create(&made, thread_ends);
    return made;
  }();
  pthread_setspecific(key, &this_thread);
  const base::LockHolder lock(threads_lock);
  for (int index = 0; index < kMostThreads; ++index) {
    MpiThread& thread = mpi_threads[index];
    if (!thread.used.load(std::memory_order_acquire)) {
      if (pthread_getcpuclockid(pthread_self(), &thread.processor_time) != 0) {
        break;
      }
      thread.blocked.store(false, std::memory_order_relaxed);
      thread.seen_ns = 0;
      thread.used.store(true, std::memory_order_release);
      this_thread = index;
      return;
    }
  }
  uncounted_threads.fetch_add(1, std::memory_order_relaxed);
  this_thread = kUncountedThread;
}

}  // namespace

bool this_thread_blocks() { return blocks; }

void set_this_thread_blocks(bool now_blocks) {
  if (this_thread == kUnknownThread) {
    register_thread();
  }
  blocks = now_blocks;
  if (this_thread >= 0) {
    mpi_threads[this_thread].blocked.store(now_blocks, std::memory_order_release);
  }
}

bool all_threads_block() {
  for (const MpiThread& thread : mpi_threads) {
    if (thread.used.load(std::memory_order_acquire) && !thread.blocked.load(std::memory_order_acquire)) {
      return false;
    }
  }
  return uncounted_threads.load(std::memory_order_relaxed) == 0;
}

bool other_threads_are_idle() {
  const base::LockHolder lock(threads_lock);
  const uint64_t now = base::monotonic_ns();
  if (now - looked_at_ns < kLookAgainNs) {
    return false;
  }
  uint64_t used_ns = 0;
  for (MpiThread& thread : mpi_threads) {
    if (!thread.used.load(std::memory_order_acquire)) {
      continue;
    }
    timespec time = {};
    (void)clock_gettime(thread.processor_time, &time);
    const uint64_t until_now = static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
    used_ns += thread.blocked.load(std::memory_order_acquire) ? 0 : until_now - thread.seen_ns;
    thread.seen_ns = until_now;
  }
  const uint64_t passed = now - looked_at_ns;
  looked_at_ns = now;
  return passed < kLookAgainNs * 10 && used_ns < passed / 20 && uncounted_threads.load(std::memory_order_relaxed) == 0;
}

}  // namespace headroom::sched
