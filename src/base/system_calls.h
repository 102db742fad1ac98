// System calls without the C library's wrappers around them.
//
// Headroom interposes read, write, mmap and others; its own uses must not meet its own wrappers, must not be cancellation
// points and must not disturb errno of the program's thread. system_call() returns the kernel's result: -errno on error.
// The futex helpers are for words in shared as well as in private memory.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>

#include <atomic>
#include <cstdint>
#include <type_traits>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace headroom::base {

#if defined(__x86_64__)
inline long system_call6(long number, long a, long b, long c, long d, long e, long f) {
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  long result = number;
  asm volatile("syscall" : "+a"(result) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return result;
}
#elif defined(__aarch64__)
inline long system_call6(long number, long a, long b, long c, long d, long e, long f) {
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  register long x3 asm("x3") = d;
  register long x4 asm("x4") = e;
  register long x5 asm("x5") = f;
  asm volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
#else
#error "Headroom supports x86-64 and AArch64"
#endif

template <typename T>
inline long as_argument(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<long>(value);
  } else {
    return static_cast<long>(value);
  }
}
inline long as_argument(decltype(nullptr)) { return 0; }

/// Any system call; missing arguments are 0. Returns -errno on error.
template <typename... Arguments>
inline long system_call(long number, Arguments... arguments) {
  const long list[6] = {as_argument(arguments)...};
  return system_call6(number, list[0], list[1], list[2], list[3], list[4], list[5]);
}

inline bool is_error(long result) { return result < 0 && result > -4096; }

/// Whether a file may have so many bytes. Asked before one grows, memory files among them: beyond the limit (RLIMIT_FSIZE,
/// `ulimit -f`) a signal would end the process.
inline bool file_may_have(uint64_t bytes) {
  struct {
    uint64_t current, maximum;
  } limit = {};
  constexpr int kFileSize = 1;
  return is_error(system_call(SYS_prlimit64, 0, kFileSize, nullptr, &limit)) || bytes <= limit.current;
}

/// Sleeps while *word == expected, at most `timeout_ns` (negative: for ever). May return early.
inline void futex_wait(const void* word, uint32_t expected, int64_t timeout_ns, bool shared) {
  timespec timeout = {timeout_ns / 1000000000, timeout_ns % 1000000000};
  const int operation = FUTEX_WAIT | (shared ? 0 : FUTEX_PRIVATE_FLAG);
  (void)system_call(SYS_futex, word, operation, expected, timeout_ns < 0 ? nullptr : &timeout, nullptr, 0);
}

inline void futex_wake(const void* word, int count, bool shared) {
  (void)system_call(SYS_futex, word, FUTEX_WAKE | (shared ? 0 : FUTEX_PRIVATE_FLAG), count, nullptr, nullptr, 0);
}

#if defined(__SANITIZE_THREAD__)
// The kernel may give the next thread addresses that this one has given back, in an order that the sanitizer does not see.
inline char addresses_passed_on;
#endif

/// Zeroed private memory for tables, populated as it is used; nullptr if the addresses cannot be had. Not through mmap(), which
/// Headroom interposes. Left out of core dumps, which would be as large as the addresses, and without huge pages, which would
/// populate what is not used.
inline void* reserve_memory(uint64_t bytes) {
  constexpr int kReadWrite = 3;
  constexpr int kPrivateAnonymousNoReserve = 0x2 | 0x20 | 0x4000;
  const long place = system_call(SYS_mmap, 0, bytes, kReadWrite, kPrivateAnonymousNoReserve, -1, 0);
  if (is_error(place)) {
    return nullptr;
  }
  constexpr int kDontDump = 16;
  constexpr int kNoHugePages = 15;
  (void)system_call(SYS_madvise, place, bytes, kDontDump);
  (void)system_call(SYS_madvise, place, bytes, kNoHugePages);
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(&addresses_passed_on);
#endif
  return reinterpret_cast<void*>(place);
}

/// Ends what reserve_memory() gave; nothing if that was nullptr.
inline void give_back_memory(void* memory, uint64_t bytes) {
  if (memory != nullptr) {
#if defined(__SANITIZE_THREAD__)
    __tsan_release(&addresses_passed_on);
#endif
    (void)system_call(SYS_munmap, memory, bytes);
  }
}

inline uint64_t nanoseconds_of(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000U + static_cast<uint64_t>(now.tv_nsec);
}

inline uint64_t monotonic_ns() { return nanoseconds_of(CLOCK_MONOTONIC); }

/// A lock for the few places where program threads meet; sleeps in the kernel, allocates nothing, survives fork when the
/// forking thread holds it (pager/fork_hooks.cc takes it around the fork).
class FutexLock {
 public:
  void lock() {
    // acquire: pairs with the release in unlock(). The work under these locks mostly takes less time than sleeping.
    constexpr int kLooks = 100;
    for (int look = 0; look < kLooks; ++look) {
      uint32_t expected = 0;
      if (word_.load(std::memory_order_relaxed) == 0 && word_.compare_exchange_strong(expected, 1, std::memory_order_acquire)) {
        return;
      }
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    while (word_.exchange(2, std::memory_order_acquire) != 0) {
      futex_wait(&word_, 2, -1, false);
    }
  }
  bool try_lock() {
    uint32_t expected = 0;
    return word_.compare_exchange_strong(expected, 1, std::memory_order_acquire);
  }
  void unlock() {
    // release: pairs with the acquire in lock().
    if (word_.exchange(0, std::memory_order_release) == 2) {
      futex_wake(&word_, 1, false);
    }
  }
  void reset() { word_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<uint32_t> word_{0};
};

class LockHolder {
 public:
  explicit LockHolder(FutexLock& lock) : LockHolder(lock, true) {}
  /// Locks only if `wanted`.
  LockHolder(FutexLock& lock, bool wanted) : lock_(lock), locked_(wanted) {
    if (locked_) {
      lock_.lock();
    }
  }
  ~LockHolder() {
    if (locked_) {
      lock_.unlock();
    }
  }
  LockHolder(const LockHolder&) = delete;
  LockHolder& operator=(const LockHolder&) = delete;

 private:
  FutexLock& lock_;
  const bool locked_;
};

}  // namespace headroom::base
