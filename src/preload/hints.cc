// The public C interface for a program's hints about its memory; see include/headroom/memory.h.
#define HEADROOM_DEFINES_THEM
#include <errno.h>

#include "headroom/memory.h"
#include "pager/pager.h"

#define HEADROOM_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

/// Calls `hint` if there is memory it could be about; errno stays.
template <typename Hint>
int give(Hint hint) {
  if (!headroom::pager::is_running()) {
    return -ENOENT;
  }
  const int saved_errno = errno;
  const int result = hint();
  errno = saved_errno;
  return result;
}

}  // namespace

HEADROOM_EXPORT int headroom_will_need(const void* address, size_t bytes) {
  return give([=] {
    headroom::pager::will_need(address, bytes);
    return 0;
  });
}

HEADROOM_EXPORT int headroom_will_not_need(const void* address, size_t bytes) {
  return give([=] {
    headroom::pager::will_not_need(address, bytes);
    return 0;
  });
}

HEADROOM_EXPORT int headroom_will_overwrite(void* address, size_t bytes) {
  return give([=] {
    headroom::pager::will_overwrite(address, bytes);
    return 0;
  });
}

HEADROOM_EXPORT int headroom_hold(const void* address, size_t bytes) {
  return give([=] { return headroom::pager::try_lock(address, bytes) ? 0 : -ENOMEM; });
}

HEADROOM_EXPORT int headroom_release(const void* address, size_t bytes) {
  return give([=] {
    headroom::pager::unlock(address, bytes);
    return 0;
  });
}
