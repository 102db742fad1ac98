// See threads.h.
#include "sched/threads.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>

#include "base/system_calls.h"

namespace headroom::sched {
namespace {

constexpr int kMostThreads = 256;
MpiThread all_threads[kMostThreads];
std::atomic<int> places_used{0};        // those behind were never used
std::atomic<int> uncounted_threads{0};  // more than that: they count as busy
base::FutexLock registering;
constexpr int kUnknownThread = -1;
constexpr int kUncountedThread = -2;
thread_local int this_thread __attribute__((tls_model("initial-exec"))) = kUnknownThread;
thread_local bool blocks __attribute__((tls_model("initial-exec"))) = false;

void thread_ends(void*) {
  if (this_thread == kUncountedThread) {
    uncounted_threads.fetch_sub(1, std::memory_order_relaxed);
  } else {
    all_threads[this_thread].used.store(false, std::memory_order_release);
  }
}

void register_thread() {
  static const pthread_key_t key = [] {
    pthread_key_t made = 0;
    pthread_key_create(&made, thread_ends);
    return made;
  }();
  pthread_setspecific(key, &this_thread);
  const base::LockHolder lock(registering);
  for (int index = 0; index < kMostThreads; ++index) {
    MpiThread& thread = all_threads[index];
    if (!thread.used.load(std::memory_order_acquire)) {
      if (pthread_getcpuclockid(pthread_self(), &thread.processor_time) != 0) {
        break;
      }
      thread.blocked.store(false, std::memory_order_relaxed);
      thread.number.store(static_cast<int32_t>(base::system_call(SYS_gettid)), std::memory_order_relaxed);
      thread.seen_ns.store(0, std::memory_order_relaxed);
      thread.waits_since_ns.store(0, std::memory_order_relaxed);
      const int used = places_used.load(std::memory_order_relaxed);
      places_used.store(index < used ? used : index + 1, std::memory_order_release);
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

MpiThread* this_mpi_thread_if_known() { return this_thread >= 0 ? &all_threads[this_thread] : nullptr; }

void set_this_thread_blocks(bool now_blocks) {
  blocks = now_blocks;
  if (this_thread == kUnknownThread) {
    register_thread();
  }
  if (MpiThread* thread = this_mpi_thread_if_known()) {
    // seq_cst: of two threads that block at the same time one sees that both do.
    thread->blocked.store(now_blocks, std::memory_order_seq_cst);
  }
}

std::span<MpiThread> known_threads() { return {all_threads, static_cast<size_t>(places_used.load(std::memory_order_acquire))}; }

bool is_any_unknown() { return uncounted_threads.load(std::memory_order_relaxed) != 0; }

bool all_threads_block() {
  for (const MpiThread& thread : known_threads()) {
    if (thread.used.load(std::memory_order_acquire) && !thread.blocked.load(std::memory_order_seq_cst)) {
      return false;
    }
  }
  return !is_any_unknown();
}

bool some_thread_blocks() {
  return std::ranges::any_of(known_threads(), [](const MpiThread& thread) {
    return thread.used.load(std::memory_order_acquire) && thread.blocked.load(std::memory_order_acquire);
  });
}

}  // namespace headroom::sched
