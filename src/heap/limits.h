// The limits that the program has set itself and that are not in effect; see limit_wrappers.cc.
#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace headroom::heap {

/// Puts them into effect while this process, or a child of it, becomes another program. If it does not, the limits that can be
/// taken back are. This process's storage would be limited, too, so nothing is written meanwhile, and no absent memory is
/// served: the kernel's arguments lie elsewhere (exec_wrappers.cc), and nothing is done for a thread whose own stack is
/// evictable. Takes no lock.
class LimitsInEffect {
 public:
  LimitsInEffect();
  ~LimitsInEffect();
  LimitsInEffect(const LimitsInEffect&) = delete;
  LimitsInEffect& operator=(const LimitsInEffect&) = delete;

 private:
  struct Change {
    bool done;
    rlimit before;
    rlimit after;
  };
  Change changes_[2] = {};
  bool stands_still_ = false;
  uint32_t asker_ = 0;
};

}  // namespace headroom::heap
