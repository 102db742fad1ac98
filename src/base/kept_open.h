// A file of /proc that stays open: one that is opened again and again has a low number for a moment, which the program may be
// about to use, or to close.
#pragma once

#include <fcntl.h>

#include <atomic>

#include "base/own_descriptors.h"
#include "base/system_calls.h"

namespace headroom::base {

class KeptOpen {
 public:
  explicit KeptOpen(const char* path) : path_(path) {}
  /// Its descriptor; tried again where none was left. Any thread.
  int descriptor() {
    int known = descriptor_.load(std::memory_order_relaxed);
    if (known < 0) {
      const int opened = own(system_call(SYS_openat, AT_FDCWD, path_, O_RDONLY | O_CLOEXEC));
      if (descriptor_.compare_exchange_strong(known, opened, std::memory_order_relaxed)) {
        return opened;
      }
      close_own(opened);  // another thread was faster
    }
    return known;
  }

 private:
  const char* path_;
  std::atomic<int> descriptor_{-1};
};

}  // namespace headroom::base
