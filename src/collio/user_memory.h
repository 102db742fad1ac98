// The memory that the program reads into or writes from, as a stream of bytes. It may be evictable: a thread that touches it
// may wait.
#pragma once

#include <cstdint>

#include "direct/layout.h"

namespace headroom::collio {

/// Where byte `offset` of the stream lies, if it is without gaps; else nullptr.
inline char* place_in(const direct::Content& user, int64_t offset) {
  return user.layout == nullptr ? user.address + offset : nullptr;
}

/// Copies parts of the stream that mostly follow each other: to find a part in memory of many runs takes as long as there are
/// runs before it, so it goes on from where the last one ended. One thread's.
class UserStream {
 public:
  explicit UserStream(const direct::Content& user) : user_(user), walk_(user) {}

  /// `bytes` bytes from byte `offset` on.
  void copy_out(int64_t offset, int64_t bytes, char* to) {
    go_to(offset);
    direct::Walk into({to, static_cast<uint64_t>(bytes), nullptr});
    direct::copy(into, walk_, static_cast<uint64_t>(bytes));
    at_ += bytes;
  }
  /// The other way.
  void copy_in(int64_t offset, int64_t bytes, char* from) {
    go_to(offset);
    direct::Walk source({from, static_cast<uint64_t>(bytes), nullptr});
    direct::copy(walk_, source, static_cast<uint64_t>(bytes));
    at_ += bytes;
  }

 private:
  void go_to(int64_t offset) {
    if (offset < at_) {
      walk_ = direct::Walk(user_);
      at_ = 0;
    }
    walk_.skip(static_cast<uint64_t>(offset - at_));
    at_ = offset;
  }

  direct::Content user_;
  direct::Walk walk_;
  int64_t at_ = 0;
};

}  // namespace headroom::collio
