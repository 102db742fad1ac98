// Handles: the end that a program's rpipe_t stands for, and the owner of the buffer that its raddr_t stands for.
//
// A handle outlives its end: it stays valid memory after rpipe_close(), so that a call with it is an error and no crash.
// Handles of closed pipes are used again, those that were closed longest ago first, and not before there are many.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "headroom/rpipe.h"
#include "rpipe/end.h"
#include "rpipe/transport.h"

/// The C interface's type.
struct rpipe {
  std::atomic<headroom::rpipe::End*> end{nullptr};
  uint32_t generation = 0;  // fork_generation() when it was opened
};

namespace headroom::rpipe {

/// The work of rpipe_init() and rpipe_init_with(). `transport`: to other nodes; nullptr: there is none.
int begin(const rpipe_bootstrap& bootstrap, const rpipe_transport* transport);

/// Whether rpipe_init() was called in this process, and rpipe_finalize() not.
bool has_begun();

/// The end that the handle is of; nullptr if it was closed, or is another process's.
inline End* end_of(const ::rpipe* pipe) {
  return pipe != nullptr && pipe->generation == fork_generation() ? pipe->end.load(std::memory_order_acquire) : nullptr;
}

/// The owner of a buffer, if it is this process: which end, and as what. `error`: why there is none.
struct Owner {
  End* end;
  uint32_t number;
  bool is_writer;
  int error;
};
Owner owner_of(raddr_t buffer);

}  // namespace headroom::rpipe
