// Headroom's own descriptors, in a process that belongs to the program.
//
// They lie out of the way of the program's numbers, which are as they would be without Headroom; and they are known, so that a
// program that closes all that may be open, as daemons do, does not close them (heap/descriptor_wrappers.cc). It would write
// its memory into the file that has the number next.
#pragma once

#include <atomic>
#include <cstdint>

namespace headroom::base {

namespace detail {
inline constexpr int kKnownDescriptors = 1 << 16;  // one beyond these is not protected
extern std::atomic<uint64_t> own_descriptors[kKnownDescriptors / 64];
}  // namespace detail

/// Moves what a system call has returned out of the way, and remembers it; an error (negative) is returned as it is. Everything
/// is closed on exec. Async-signal-safe.
int own(long descriptor);

/// Closes it, own or not. Async-signal-safe.
void close_own(long descriptor);

inline bool is_own(int descriptor) {
  return descriptor >= 0 && descriptor < detail::kKnownDescriptors &&
         (detail::own_descriptors[descriptor / 64].load(std::memory_order_relaxed) >> (descriptor % 64) & 1) != 0;
}

/// The next of our own descriptors from `from` on, or -1.
int next_own(unsigned from);

}  // namespace headroom::base
