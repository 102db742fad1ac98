// Requests of program threads to the pager thread.
//
// A request lies in a fixed array of slots; the pager thread is woken by an eventfd, and the asker sleeps on the slot's futex
// until it is done. Nothing is allocated and no lock is taken, so a SIGSEGV handler may ask. The pager may answer later (a
// fault that waits for storage) and serve others meanwhile.
//
//   FREE ─ an asker ─► FILLING ─ the asker ─► POSTED ─ the pager ─► TAKEN ─ the pager ─► DONE ─ the asker ─► FREE
//
// Not on the asker's stack: a signal handler may leave the wait by a jump (siglongjmp out of an alarm's handler), and the pager
// would write its answer into what the program has there by then. A thread that jumps leaves its slot DONE; when no other is
// free, one that has been DONE for long is taken from its thread, and its generation tells the thread so if it comes after all.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "pager/pager.h"

namespace headroom::pager {

inline constexpr int kMostRequests = 8192;  // at once; more threads than a process mostly has

enum class RequestKind : uint32_t {
  kFault,          // make `block` accessible (for writing if `write`)
  kBring,          // the same for `count` blocks that the asker holds; counts no fault
  kDiscard,        // give up the content of `count` blocks from `block`
  kGrow,           // make the partition `bytes` long
  kAdopt,          // watch the newest static region
  kArm,            // become armed
  kFork,           // protect memory, a fork follows; the asker has had the process armed, and holds the transition lock
  kComplete,       // give forked children all that is theirs: this process ends
  kStandStill,     // until go_on()
  kWillNeed,       // read `count` blocks from `block` ahead of their use
  kWillNotNeed,    // let them leave before others
  kWillOverwrite,  // do not read them again, nor write them out
  kWillFill,       // do not read those again that are on storage
  kCheck,          // kOk if the invariants hold; for tests
};

struct Request {
  RequestKind kind;
  bool write;
  uint64_t block;
  uint64_t count;
  uint64_t bytes;
  base::Status status;
  int32_t thread;  // of a fault
  uint64_t started_ns;
  uint64_t ended_ns;  // by finish(); 0 before
};

/// Hands a copy of the request to the pager thread, waits until it is done, and says its status in `request`.
/// Async-signal-safe, and may be left by a jump.
void perform(Request& request);

/// For the pager thread: the eventfd says nothing until another request comes. Before the first next_request().
void begin_requests();

/// For the pager thread: the next request, or nullptr.
Request* next_request();

/// For the pager thread: ends a request and wakes its asker.
void finish(Request& request, base::Status status = base::Status::kOk);

/// Makes the eventfd; its descriptor is readable when requests wait.
base::Result<int> open_request_descriptor();

/// Wakes the pager thread.
void nudge();

}  // namespace headroom::pager
