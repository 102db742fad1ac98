// Closing descriptors: a program that closes all that may be open, as daemons do, does not close Headroom's
// (base/own_descriptors.h). They look to it as if nothing were open there.
#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/own_descriptors.h"
#include "base/system_calls.h"
#include "heap/bare_calls.h"
#include "heap/held_calls.h"

namespace {

using namespace headroom;
using base::system_call;

HEADROOM_REAL(close);
HEADROOM_REAL(dup2);
HEADROOM_REAL(dup3);

/// close_range() of the descriptors between our own; an error code as of a system call.
long close_between(unsigned first, unsigned last, int flags) {
  while (first <= last) {
    const int own = base::next_own(first);
    const unsigned end = own >= 0 && static_cast<unsigned>(own) <= last ? static_cast<unsigned>(own) : last + 1;
    if (end > first || end == 0) {  // 0: last is the largest number there is
      const long result = system_call(SYS_close_range, first, end - 1, flags);
      if (base::is_error(result) || end == 0) {
        return result;
      }
    }
    first = end + (end <= last ? 1 : 0);
  }
  return 0;
}

}  // namespace

HEADROOM_EXPORT int close(int descriptor) {
  if (__builtin_expect(base::is_own(descriptor), 0)) {
    errno = EBADF;
    return -1;
  }
  return real_close.get()(descriptor);
}

int headroom::heap::close_others(unsigned first, unsigned last, int flags) {
  if (first > last) {
    errno = EINVAL;
    return -1;
  }
  const long result = close_between(first, last, flags);
  if (base::is_error(result)) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return 0;
}

HEADROOM_EXPORT int close_range(unsigned first, unsigned last, int flags) noexcept {
  return heap::close_others(first, last, flags);
}

HEADROOM_EXPORT void closefrom(int lowest) noexcept {
  const unsigned first = lowest > 0 ? static_cast<unsigned>(lowest) : 0;
  if (!base::is_error(close_between(first, ~0U, 0))) {
    return;
  }
  rlimit limit = {};  // Linux before 5.9
  const unsigned end = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<unsigned>(limit.rlim_cur) : 1024;
  for (unsigned descriptor = first; descriptor < end; ++descriptor) {
    (void)close(static_cast<int>(descriptor));
  }
}

HEADROOM_EXPORT int dup2(int from, int to) noexcept {
  if (base::is_own(to)) {
    errno = EBADF;
    return -1;
  }
  return real_dup2.get()(from, to);
}
HEADROOM_EXPORT int dup3(int from, int to, int flags) noexcept {
  if (base::is_own(to)) {
    errno = EBADF;
    return -1;
  }
  return real_dup3.get()(from, to, flags);
}
