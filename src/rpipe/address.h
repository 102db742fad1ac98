// The contents of a raddr_t: the direction that a buffer is of, the buffer's number in it, and the how-manieth use of that
// number.
#pragma once

#include <cstdint>

#include "headroom/rpipe.h"

namespace headroom::rpipe {

struct Address {
  uint32_t rank;    // of the writer
  uint32_t record;  // the writer's
  uint32_t buffer;
  uint16_t generation;
};

inline constexpr uint32_t kMostRanks = 1 << 20;
inline constexpr uint32_t kMostRecords = 1 << 16;  // of a process

inline constexpr raddr_t to_raddr(const Address& address) {
  return uint64_t{1} << 63 | uint64_t{address.rank} << 43 | uint64_t{address.record} << 27 | uint64_t{address.buffer} << 11 |
         address.generation;
}

inline constexpr Address from_raddr(raddr_t raddr) {
  return {static_cast<uint32_t>(raddr >> 43 & 0xfffff), static_cast<uint32_t>(raddr >> 27 & 0xffff),
          static_cast<uint32_t>(raddr >> 11 & 0xffff), static_cast<uint16_t>(raddr & 0x7ff)};
}

inline constexpr bool is_raddr(raddr_t raddr) { return raddr >> 63 != 0; }

}  // namespace headroom::rpipe
