// See own_descriptors.h.
#include "base/own_descriptors.h"

#include <fcntl.h>

#include "base/system_calls.h"

namespace headroom::base {

namespace detail {
std::atomic<uint64_t> own_descriptors[kKnownDescriptors / 64];
}

namespace {

constexpr long kFirst = 256;  // a process may mostly have 1024

void note(int descriptor, bool is_ours) {
  if (descriptor >= detail::kKnownDescriptors) {
    return;
  }
  std::atomic<uint64_t>& word = detail::own_descriptors[descriptor / 64];
  const uint64_t bit = uint64_t{1} << (descriptor % 64);
  is_ours ? word.fetch_or(bit, std::memory_order_relaxed) : word.fetch_and(~bit, std::memory_order_relaxed);
}

}  // namespace

// Between the call that makes a descriptor and this one it has the lowest number that is free, for a microsecond: another
// thread of the program's that opens something just then gets the next one. That cannot be closed from here. No call that makes
// a descriptor takes a number (openat2() neither; pidfd_getfd() and descriptors sent over a socket give the lowest, too);
// F_DUPFD alone has a least one, and needs one that is there. A thread with a table of its own (unshare(CLONE_FILES)) would
// have to hand over what it opens by one of the calls above, and io_uring's direct descriptors are installed at the lowest
// number. Where the program has one thread only, as at most of these calls, nobody can see it.
int own(long descriptor) {
  if (descriptor < 0) {
    return static_cast<int>(descriptor);
  }
  const long moved = descriptor < kFirst ? system_call(SYS_fcntl, descriptor, F_DUPFD_CLOEXEC, kFirst) : descriptor;
  if (is_error(moved)) {  // the limit is too low
    note(static_cast<int>(descriptor), true);
    return static_cast<int>(descriptor);
  }
  note(static_cast<int>(moved), true);
  if (moved != descriptor) {
    (void)system_call(SYS_close, descriptor);
  }
  return static_cast<int>(moved);
}

void close_own(long descriptor) {
  if (descriptor < 0) {
    return;
  }
  note(static_cast<int>(descriptor), false);
  (void)system_call(SYS_close, descriptor);
}

int next_own(unsigned from) {
  for (unsigned at = from; at < detail::kKnownDescriptors; at = (at / 64 + 1) * 64) {
    const uint64_t rest = detail::own_descriptors[at / 64].load(std::memory_order_relaxed) >> (at % 64);
    if (rest != 0) {
      return static_cast<int>(at) + __builtin_ctzll(rest);
    }
  }
  return -1;
}

}  // namespace headroom::base
