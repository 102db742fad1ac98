// The tag of a transfer: what it is, the first block or page of the partition, and how many.
//
// Private to transfers.cc and ended_transfers.cc.
#pragma once

#include <cstdint>

namespace headroom::pager {

inline constexpr int kKindShift = 62;
inline constexpr int kNumberShift = 8;
enum class TransferKind : uint64_t { kBlocks, kPages, kFill };
inline uint64_t tag_of(TransferKind kind, uint64_t number, uint64_t count) {
  return static_cast<uint64_t>(kind) << kKindShift | number << kNumberShift | count;
}
inline TransferKind kind_of(uint64_t tag) { return static_cast<TransferKind>(tag >> kKindShift); }
inline uint64_t number_of(uint64_t tag) { return tag << 2 >> (kNumberShift + 2); }
inline uint64_t count_of(uint64_t tag) { return tag & 0xff; }

}  // namespace headroom::pager
