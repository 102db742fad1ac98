// Memory of heaps, which never leaves memory, and so counts in the budget of a process that runs under Headroom (host.h).
#pragma once

#include <cerrno>
#include <cstdint>

#include "rpipe/host.h"
#include "rpipe/memory_file.h"

namespace headroom::rpipe {

/// Gives back the budget that populate_counted() took.
inline void give_back_counted(uint64_t bytes) {
  if (host() != nullptr && bytes > 0) {
    host()->give_back(bytes);
  }
}

/// MemoryFile::populate() within the budget. -ENOMEM: that, or the system, refuses.
inline int populate_counted(const MemoryFile& file, const MemoryFile::Piece& piece, uint64_t from, uint64_t bytes) {
  if (host() != nullptr && !host()->take(bytes)) {
    return -ENOMEM;
  }
  const int error = file.populate(piece, from, bytes);
  if (error != 0) {
    give_back_counted(bytes);
  }
  return error;
}

}  // namespace headroom::rpipe
