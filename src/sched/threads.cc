// See threads.h.
#include "sched/threads.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "base/system_calls.h"
#include "pager/pager.h"
#include "trace/counters.h"

namespace headroom::sched {
namespace {

constexpr uint64_t kLookAgainNs = 2'000'000;
constexpr int kLooksAtUnknown = 10;           // in a row, before they count as idle: whether they have a core is not known
constexpr uint64_t kSpinsNs = 1'000'000'000;  // who has not waited for storage for so long may as well do nothing useful

struct MpiThread {
  std::atomic<bool> used;
  std::atomic<bool> blocked;
  std::atomic<int32_t> number;
  clockid_t processor_time;
  uint64_t seen_ns;  // of processor time, when the threads were last looked at; under the lock
};
constexpr int kMostThreads = 256;
MpiThread mpi_threads[kMostThreads];
std::atomic<int> known_threads{0};                // those behind were never used
std::atomic<int> uncounted_threads{0};            // more than that: they count as busy
std::atomic<uint64_t> unknown_computed_at_ns{0};  // a thread that has never called MPI; 0: none, or it is idle
uint64_t looked_at_ns = 0;                        // under the lock, as the next one
uint64_t process_seen_ns = 0;                     // of processor time, of all threads but the pager's
uint64_t waits_seen_ns = 0;                       // for storage, of all threads
int looks_at_idle = 0;                            // in a row
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
      thread.number.store(static_cast<int32_t>(base::system_call(SYS_gettid)), std::memory_order_relaxed);
      thread.seen_ns = 0;
      const int known = known_threads.load(std::memory_order_relaxed);
      known_threads.store(index < known ? known : index + 1, std::memory_order_release);
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
  const int known = known_threads.load(std::memory_order_acquire);
  for (int index = 0; index < known; ++index) {
    const MpiThread& thread = mpi_threads[index];
    if (thread.used.load(std::memory_order_acquire) && !thread.blocked.load(std::memory_order_acquire)) {
      return false;
    }
  }
  return uncounted_threads.load(std::memory_order_relaxed) == 0 && unknown_computed_at_ns.load(std::memory_order_relaxed) == 0;
}

namespace {

const MpiThread* find_known(int32_t number) {
  const int known = known_threads.load(std::memory_order_acquire);
  for (int index = 0; index < known; ++index) {
    const MpiThread& thread = mpi_threads[index];
    if (thread.number.load(std::memory_order_relaxed) == number && thread.used.load(std::memory_order_acquire)) {
      return &thread;
    }
  }
  return nullptr;
}

/// Whether the thread would use a processor if it had one.
bool is_runnable(int32_t number) {
  char path[48];
  char text[512];
  (void)snprintf(path, sizeof path, "/proc/self/task/%d/stat", number);
  const long file = base::system_call(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (base::is_error(file)) {
    return false;
  }
  const long bytes = base::system_call(SYS_read, file, text, sizeof text);
  (void)base::system_call(SYS_close, file);
  const auto* end = bytes > 0 ? static_cast<const char*>(memrchr(text, ')', static_cast<size_t>(bytes))) : nullptr;
  return end != nullptr && end + 2 < text + bytes && end[2] == 'R';
}

/// Of all threads but the pager's.
uint64_t processor_ns_of_process() {
  timespec time = {};
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec * 1'000'000'000 + time.tv_nsec - pager::own_processor_ns());
}

}  // namespace

bool computes(int32_t number) {
  if (const MpiThread* thread = find_known(number); thread != nullptr) {
    return !thread->blocked.load(std::memory_order_acquire);
  }
  return !base::is_error(base::system_call(SYS_tgkill, getpid(), number, 0));
}

void note_computing(int32_t number) {
  if (find_known(number) == nullptr) {
    unknown_computed_at_ns.store(base::monotonic_ns(), std::memory_order_relaxed);
  }
}

bool other_threads_are_idle() {
  const base::LockHolder lock(threads_lock);
  if (pager::accesses_wait()) {
    return false;
  }
  const uint64_t now = base::monotonic_ns();
  if (now - looked_at_ns < kLookAgainNs) {
    return false;
  }
  const uint64_t passed = now - looked_at_ns;
  const uint64_t hardly_any_ns = passed / 20;
  looked_at_ns = now;
  uint64_t blocked_ns = 0;  // they poll
  uint64_t others_ns = 0;
  const uint64_t process_ns = processor_ns_of_process();
  const uint64_t process_used_ns = process_ns - process_seen_ns;
  process_seen_ns = process_ns;
  const uint64_t waits_ns = trace::counted(trace::Counter::kStorageWaitNs);
  const uint64_t waited_ns = waits_ns - waits_seen_ns;
  waits_seen_ns = waits_ns;
  bool some_wait_for_processor = false;
  for (MpiThread& thread : mpi_threads) {
    if (!thread.used.load(std::memory_order_acquire)) {
      continue;
    }
    timespec time = {};
    (void)clock_gettime(thread.processor_time, &time);
    const uint64_t until_now = static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
    const uint64_t used = until_now - thread.seen_ns;
    const bool blocked = thread.blocked.load(std::memory_order_acquire);
    (blocked ? blocked_ns : others_ns) += used;
    thread.seen_ns = until_now;
    some_wait_for_processor = some_wait_for_processor ||
                              (!blocked && used < hardly_any_ns && is_runnable(thread.number.load(std::memory_order_relaxed)));
  }
  const uint64_t computed_at = unknown_computed_at_ns.load(std::memory_order_relaxed);
  const bool unknown_count = computed_at != 0 && now - computed_at < kSpinsNs;
  const uint64_t unblocked_ns = process_used_ns > blocked_ns ? process_used_ns - blocked_ns : 0;
  const uint64_t used_ns = waited_ns + (unknown_count ? unblocked_ns : others_ns);
  const bool idle = passed < kLookAgainNs * 10 && used_ns < hardly_any_ns && !some_wait_for_processor &&
                    uncounted_threads.load(std::memory_order_relaxed) == 0;
  looks_at_idle = idle ? looks_at_idle + 1 : 0;
  if (!idle || (unknown_count && looks_at_idle < kLooksAtUnknown)) {
    return false;
  }
  unknown_computed_at_ns.store(0, std::memory_order_relaxed);
  return true;
}

}  // namespace headroom::sched
