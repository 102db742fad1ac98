// Arguments of system calls that may lie in evictable memory: paths, structures, lists.
//
// Where the engine serves the kernel nothing need be done. Where it does not, absent memory makes such a call fail with
// EFAULT, or lose what it did (a child that is reaped while its status cannot be stored). So such arguments are held while
// the call runs; arguments elsewhere, nearly all, cost a comparison. Why not syscall user dispatch: docs/dev/pager.md.
#pragma once

#include <limits.h>
#include <sys/socket.h>

#include <algorithm>

#include "heap/held_calls.h"

namespace headroom::heap {

/// Keeps one argument resident while a call runs.
class HeldArgument {
 public:
  HeldArgument(const void* address, size_t bytes, bool write)
      : address_(address != nullptr && !pager::engine_serves_kernel() && is_ours(address, bytes) ? address : nullptr),
        // No more than may be held: such calls do not use the room that they are given beyond that.
        bytes_(address_ == nullptr ? bytes : std::min(bytes, largest_hold())),
        write_(write) {
    if (address_ != nullptr) {
      heap::hold(address_, bytes_, write_);
    }
  }
  ~HeldArgument() {
    if (address_ != nullptr) {
      const int saved_errno = errno;
      heap::drop_hold(address_, bytes_, write_);
      errno = saved_errno;
    }
  }
  HeldArgument(const HeldArgument&) = delete;
  HeldArgument& operator=(const HeldArgument&) = delete;

 private:
  const void* address_;
  size_t bytes_;
  bool write_;
};

/// A path or another text: its length matters only if it is ours.
struct HeldText : HeldArgument {
  explicit HeldText(const char* text)
      : HeldArgument(text, text != nullptr && is_ours(text, 1) ? strnlen(text, PATH_MAX) + 1 : 1, false) {}
};

template <typename T>
struct HeldOut : HeldArgument {
  explicit HeldOut(T* out, size_t count = 1) : HeldArgument(out, count * sizeof(T), true) {}
};

/// An address that the kernel stores, and its length.
struct HeldAddress {
  HeldAddress(sockaddr* address, socklen_t* bytes)
      : address_(address, address != nullptr && bytes != nullptr ? *bytes : 0, true),
        bytes_(address != nullptr ? bytes : nullptr) {}
  HeldArgument address_;
  HeldOut<socklen_t> bytes_;
};

}  // namespace headroom::heap
