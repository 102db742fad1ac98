// Locks that cost nothing as long as one thread alone calls.
//
// Many programs ask for MPI_THREAD_MULTIPLE (mpi4py does by itself) and then call MPI from one thread. An atomic operation
// waits until all that was written before has reached the other processors' caches: at each message that is half of what a
// short one costs. So the thread that has called so far takes no lock: it says by a plain store that it is inside, and looks
// whether others have been seen. The first other thread says so, has the kernel run a barrier on every processor that runs a
// thread of this process (membarrier; asymmetric, since only it pays), and waits until nobody is inside. From then on the lock
// is a lock.
//
// Either the first thread's look comes before the barrier: then its store does too, and the other thread sees it inside. Or it
// comes after: then it sees that others have been seen. Where the kernel has no such barrier there are several threads at once.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/system_calls.h"

namespace headroom::base {

/// The threads that call: one object for all locks that the same calls take.
class CallingThreads {
 public:
  /// Several threads may call from now on; this one has so far. Before any other can.
  void expect_several() {
    alone_ = __builtin_thread_pointer();
    possible_ = true;
    several_.store(is_error(system_call(SYS_membarrier, kRegisterPrivateExpedited, 0, 0)), std::memory_order_relaxed);
  }
  /// Whether there may be several, seen or not.
  [[nodiscard]] bool may_be_several() const { return possible_; }
  [[nodiscard]] bool are_several() const { return several_.load(std::memory_order_relaxed); }

 private:
  friend class ThreadsLock;
  static constexpr int kPrivateExpedited = 1 << 3;
  static constexpr int kRegisterPrivateExpedited = 1 << 4;

  /// A thread calls; whether it is the only one so far.
  bool enter_alone() {
    if (__builtin_expect(alone_ == __builtin_thread_pointer(), 1)) {
      return !are_several();
    }
    // acquire: pairs with the release below. A thread that comes while another one is at it cannot rely on that one's barrier
    // yet.
    if (__builtin_expect(!barrier_done_.load(std::memory_order_acquire), 0)) {
      several_.store(true, std::memory_order_relaxed);
      (void)system_call(SYS_membarrier, kPrivateExpedited, 0, 0);
      barrier_done_.store(true, std::memory_order_release);
    }
    return false;
  }

  bool possible_ = false;
  std::atomic<bool> several_{false};
  std::atomic<bool> barrier_done_{false};
  const void* alone_ = nullptr;  // the thread; one that gets its address when it has ended is as good
};

class ThreadsLock {
 public:
  /// True: taken without the lock, since this thread is the only one. Not so if one that does not call may lock() now.
  bool enter(CallingThreads& threads, bool may_be_alone = true) {
    if (threads.enter_alone() && may_be_alone) {
      inside_.store(1, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // and for the processor, the other thread's membarrier
      if (!threads.are_several()) {
        return true;
      }
      inside_.store(0, std::memory_order_release);
    }
    lock();
    return false;
  }
  void leave(bool entered_alone) {
    if (entered_alone) {
      inside_.store(0, std::memory_order_release);  // pairs with the acquire in lock()
    } else {
      unlock();
    }
  }

  /// For threads that are not among those that call.
  void lock() {
    lock_.lock();
    while (__builtin_expect(inside_.load(std::memory_order_acquire) != 0, 0)) {
      (void)system_call(SYS_sched_yield);
    }
  }
  void unlock() { lock_.unlock(); }

 private:
  FutexLock lock_;
  std::atomic<uint32_t> inside_{0};
};

}  // namespace headroom::base
