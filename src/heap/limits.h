// The limits that the program has set itself and that are not in effect; see limit_wrappers.cc.
#pragma once

#include <sys/resource.h>

namespace headroom::heap {

/// Puts them into effect while this process, or a child of it, becomes another program. If it does not, what can be taken back
/// is. Takes no lock.
class LimitsInEffect {
 public:
  LimitsInEffect();
  ~LimitsInEffect();
  LimitsInEffect(const LimitsInEffect&) = delete;
  LimitsInEffect& operator=(const LimitsInEffect&) = delete;

 private:
  rlimit before_[2] = {};
};

}  // namespace headroom::heap
