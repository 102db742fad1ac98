// How long a sender waits for a receiver that does not come, before its content is copied aside.
//
// A sender looks for about as long as copying aside would take. With more ranks than cores a long message's sender sleeps once
// or twice before that (waiting.h): its receiver may just not have had a processor.
#pragma once

#include <cstdint>

namespace headroom::direct {

/// After how many looks a sender copies `bytes` aside; `waiters_may_sleep`: there are more ranks than cores.
constexpr uint64_t looks_before_copying_aside(uint64_t bytes, bool waiters_may_sleep) {
  constexpr uint64_t kLooksBeforeSleep = 60;
  constexpr uint64_t kLooksAndSleeps = 68;
  constexpr uint64_t kLong = 64 << 10;
  constexpr uint64_t kBytesCopiedInALook = 256;
  if (!waiters_may_sleep) {
    return 64 + bytes / kBytesCopiedInALook;
  }
  return bytes < kLong ? kLooksBeforeSleep : kLooksAndSleeps;
}

}  // namespace headroom::direct
