// The memory that the program reads into or writes from, as a stream of bytes. It may be evictable: who touches it waits.
#pragma once

#include <cstdint>

#include "direct/layout.h"

namespace headroom::collio {

/// Where byte `offset` of the stream lies, if it is without gaps; else nullptr.
inline char* place_in(const direct::Content& user, int64_t offset) {
  return user.layout == nullptr ? user.address + offset : nullptr;
}

/// Copies `bytes` bytes of the stream, from byte `offset` on, to `to`.
inline void copy_out(const direct::Content& user, int64_t offset, int64_t bytes, char* to) {
  direct::Walk from(user);
  from.skip(static_cast<uint64_t>(offset));
  direct::Walk into({to, static_cast<uint64_t>(bytes), nullptr});
  direct::copy(into, from, static_cast<uint64_t>(bytes));
}

/// The other way.
inline void copy_in(const direct::Content& user, int64_t offset, int64_t bytes, char* from) {
  direct::Walk into(user);
  into.skip(static_cast<uint64_t>(offset));
  direct::Walk source({from, static_cast<uint64_t>(bytes), nullptr});
  direct::copy(into, source, static_cast<uint64_t>(bytes));
}

}  // namespace headroom::collio
