// Cross-memory attach: copying to or from memory of another process that is not shared, such as its stack or its small
// allocations, with process_vm_readv and process_vm_writev: one copy, made by the kernel.
//
// A process tries whether that is allowed, and does not assume it: security modules, containers and user identities forbid it
// here and there. It tries to read from each process whose messages it begins to receive, and says in its Root (root.h)
// whether it could.
#pragma once

#include <cstdint>

#include "direct/layout.h"

namespace headroom::direct {

/// Messages of at least this size that do not lie in evictable memory are read by attaching; shorter ones go in the record.
inline constexpr uint64_t kAttachFrom = 8 << 10;
/// From here on both sides copy: half of it each, or pieces as usual where it is long.
inline constexpr uint64_t kAttachSharedFrom = 16 << 10;

/// Where one of the two contents of a copy lies.
enum class Reach : uint8_t {
  kHere,       // both can be read and written here
  kFromOther,  // the source is another process's
  kToOther,    // the target is
};

/// How a copy is made.
struct Way {
  Reach reach = Reach::kHere;
  int pid = 0;  // the other process
};

/// Lets processes that are not this one's parents read its memory, where the kernel (Yama) asks for that.
void allow_attaching();

/// Whether this process may read memory of process `pid`: whether it finds `expected` at `address` there.
bool can_attach(int pid, const void* address, uint64_t expected);

/// Whether content of that layout is in pieces long enough for the kernel to copy.
bool suits_attaching(const Content& content);

/// Copies `bytes` bytes from one walk to the other in that way. False: the other process's memory cannot be reached (any more).
bool copy(Walk& to, Walk& from, uint64_t bytes, const Way& way);

}  // namespace headroom::direct
