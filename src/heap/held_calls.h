// The common parts of the wrappers of system calls and of stdio: the real function (real_function.h), and holds on the
// program's buffers.
#pragma once

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>

#include "base/system_calls.h"
#include "heap/heap.h"
#include "heap/real_function.h"
#include "pager/pager.h"

#define HEADROOM_EXPORT extern "C" __attribute__((visibility("default")))

namespace headroom::heap {

/// Whether any of the buffer lies in evictable memory: of a static array only the middle may.
inline bool is_ours(const void* address, size_t bytes) { return __builtin_expect(pager::overlaps(address, bytes), 0); }

/// A forked child shares the pages that it has only read with its parent, which may take them back; the kernel would not wait
/// for them. Pages that the child writes are its own. (Pages that it may not write stay as they are.)
inline void make_own(const void* address, size_t bytes) {
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE
  const uintptr_t end = reinterpret_cast<uintptr_t>(address) + bytes;
  for (uintptr_t page = reinterpret_cast<uintptr_t>(address) & ~(arena::kPageBytes - 1); page < end;
       page += arena::kPageBytes) {
    while (base::system_call(SYS_madvise, page, arena::kPageBytes, kPopulateWrite) == -EFAULT) {
      (void)*reinterpret_cast<const volatile char*>(page);  // it was just taken back
    }
  }
}

/// A forked child has no pager to hold anything: it touches the pages, and they stay its own.
inline void hold(const void* address, size_t bytes, bool write) {
  if (!pager::is_forked_child()) {
    pager::hold(address, bytes, write);
    return;
  }
  if (bytes == 0) {
    return;
  }
  for (size_t at = 0; at < bytes; at += arena::kPageBytes) {
    (void)static_cast<const volatile char*>(address)[at];
  }
  (void)static_cast<const volatile char*>(address)[bytes - 1];
  if (!pager::engine_serves_kernel()) {
    make_own(address, bytes);
  }
}
inline void drop_hold(const void* address, size_t bytes, bool write) {
  if (!pager::is_forked_child()) {
    pager::drop_hold(address, bytes, write);
  }
}
inline size_t largest_hold() { return pager::is_forked_child() ? size_t{16} << 20 : pager::largest_hold(); }

/// A pipe or socket may have no more than the first piece took: reading on would block where one call would have returned.
inline bool may_read_on(int file) {
  struct stat status = {};
  return fstat(file, &status) == 0 && (S_ISREG(status.st_mode) || S_ISBLK(status.st_mode));
}

/// How many bytes the process's calls hold. They may wait for a peer of theirs for long.
inline std::atomic<size_t> held_by_calls{0};

/// The most that is held by a call that may wait for a peer for long and brings no more at once anyway: others' calls have the
/// rest.
inline constexpr size_t kMostWhileWaiting = 1 << 20;

/// How much one more call may hold beside others' calls, which hold so much: all calls together may hold no more than one may;
/// but a datagram, which must go as a whole, fits into any, and so does a block.
inline size_t holdable_beside(size_t others) {
  const size_t most = largest_hold();
  const size_t used = pager::is_forked_child() ? 0 : others;
  const size_t free = used < most ? (most - used) / arena::kBlockBytes * arena::kBlockBytes : 0;  // direct I/O is aligned
  return std::max(free, arena::kBlockBytes);
}
/// That much, until another call begins.
inline size_t holdable_now() { return holdable_beside(held_by_calls.load(std::memory_order_relaxed)); }

/// Whether buffers that keep so much in memory may be held together: each hold may have a block more than it fills.
inline bool may_hold_beside(size_t bytes, size_t others) { return bytes <= holdable_beside(others) + arena::kBlockBytes; }
inline bool may_hold(size_t bytes) { return may_hold_beside(bytes, held_by_calls.load(std::memory_order_relaxed)); }

/// Counts the bytes that one more call holds, if it may: between a look and the counting another call could begin.
inline bool try_count_held(size_t bytes) {
  size_t others = held_by_calls.load(std::memory_order_relaxed);
  do {
    if (!may_hold_beside(bytes, others)) {
      return false;
    }
  } while (!held_by_calls.compare_exchange_weak(others, others + bytes, std::memory_order_relaxed));
  return true;
}

/// The bytes that holds of several buffers keep in memory together: whole blocks, and a block that a buffer shares with the
/// buffer before it once.
class HeldTogether {
 public:
  size_t with(const iovec& vector) {
    if (vector.iov_len > 0 && is_ours(vector.iov_base, vector.iov_len)) {
      const auto begin = reinterpret_cast<uintptr_t>(vector.iov_base);
      const uintptr_t first = begin / arena::kBlockBytes;
      const uintptr_t last = (begin + vector.iov_len - 1) / arena::kBlockBytes;
      bytes_ += (last - first + (first == last_ ? 0 : 1)) * arena::kBlockBytes;
      last_ = last;
    }
    return bytes_;
  }

 private:
  size_t bytes_ = 0;
  uintptr_t last_ = 0;
};

inline size_t held_bytes(const iovec* vectors, size_t count) {
  HeldTogether held;
  size_t bytes = 0;
  for (size_t index = 0; index < count; ++index) {
    bytes = held.with(vectors[index]);
  }
  return bytes;
}

/// Holds the vectors' buffers for one call. Ends with its scope in any case: a thread may be cancelled in a call that waits.
class VectorHold {
 public:
  /// kIfItMay: not unless they may be held together now; holds_all() says whether they are.
  enum class When { kAlways, kIfItMay };
  VectorHold(const iovec* vectors, size_t count, bool write, When when = When::kAlways)
      : vectors_(vectors), count_(count), bytes_(held_bytes(vectors, count)), write_(write) {
    if (bytes_ == 0) {
      return;  // nearly always
    }
    if (when == When::kAlways) {
      held_by_calls.fetch_add(bytes_, std::memory_order_relaxed);
    } else if (!try_count_held(bytes_)) {
      bytes_ = 0;
      holds_all_ = false;
      return;
    }
    for (size_t index = 0; index < count_; ++index) {
      if (is_ours(vectors_[index].iov_base, vectors_[index].iov_len)) {
        hold(vectors_[index].iov_base, vectors_[index].iov_len, write_);
      }
    }
  }
  ~VectorHold() {
    if (bytes_ == 0) {
      return;
    }
    const int saved_errno = errno;
    for (size_t index = 0; index < count_; ++index) {
      if (is_ours(vectors_[index].iov_base, vectors_[index].iov_len)) {
        drop_hold(vectors_[index].iov_base, vectors_[index].iov_len, write_);
      }
    }
    held_by_calls.fetch_sub(bytes_, std::memory_order_relaxed);
    errno = saved_errno;
  }
  VectorHold(const VectorHold&) = delete;
  VectorHold& operator=(const VectorHold&) = delete;

  [[nodiscard]] bool holds_all() const { return holds_all_; }

 private:
  const iovec* vectors_;
  size_t count_;
  size_t bytes_;
  bool write_;
  bool holds_all_ = true;
};

/// Transfers a buffer in pieces that may be held. A piece that comes back short ends it, as a short transfer would, and so does
/// `may_go_on()`, asked when there is more.
template <typename Call, typename MayGoOn>
ssize_t in_pieces(const void* buffer, size_t bytes, bool kernel_writes, Call call, MayGoOn may_go_on) {
  size_t done = 0;
  do {
    const char* at = static_cast<const char*>(buffer) + done;
    const size_t most = holdable_now();
    const size_t piece = std::min<size_t>(bytes - done, most);
    const iovec vector = {const_cast<char*>(at), piece};
    ssize_t result = 0;
    {
      const VectorHold held(&vector, 1, kernel_writes);
      result = call(const_cast<char*>(at), piece, done);
    }
    if (result < 0) {
      return done > 0 ? static_cast<ssize_t>(done) : result;
    }
    done += static_cast<size_t>(result);
    if (static_cast<size_t>(result) < piece) {
      break;
    }
  } while (done < bytes && may_go_on());
  return static_cast<ssize_t>(done);
}

template <typename Call>
ssize_t in_pieces(const void* buffer, size_t bytes, bool kernel_writes, Call call) {
  return in_pieces(buffer, bytes, kernel_writes, call, [] { return true; });
}

/// Memory of the system's own, for the time of a call.
class PlainMemory {
 public:
  explicit PlainMemory(size_t bytes) : bytes_(bytes) {
    const long result = base::system_call(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    address = base::is_error(result) ? nullptr : reinterpret_cast<void*>(result);
  }
  ~PlainMemory() {
    if (address != nullptr) {
      (void)base::system_call(SYS_munmap, address, bytes_);
    }
  }
  PlainMemory(const PlainMemory&) = delete;
  PlainMemory& operator=(const PlainMemory&) = delete;
  void* address;

 private:
  size_t bytes_;
};

/// For calls in which a thread is not to be cancelled, as by syscall(), although they are made of such as are.
class NotCancelled {
 public:
  NotCancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NotCancelled() { pthread_setcancelstate(before_, nullptr); }
  NotCancelled(const NotCancelled&) = delete;
  NotCancelled& operator=(const NotCancelled&) = delete;

 private:
  int before_ = 0;
};

/// How many of the vectors, counted from the first, may be held together; at least one.
inline int holdable(const iovec* vectors, int count) {
  HeldTogether held;
  for (int index = 0; index < count; ++index) {
    if (!may_hold(held.with(vectors[index])) && index > 0) {
      return index;
    }
  }
  return count;
}

/// The first vector alone, shortened to what may be held; a short transfer is what such calls may return anyway.
inline iovec shortened(const iovec& vector) {
  const size_t most = is_ours(vector.iov_base, vector.iov_len) ? holdable_now() : vector.iov_len;
  return {vector.iov_base, std::min(vector.iov_len, most)};
}

}  // namespace headroom::heap
