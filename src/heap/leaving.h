// The steps of a process before it ends, or becomes another program, past its exit handlers.
#pragma once

#include <unistd.h>

#include "pager/pager.h"

namespace headroom::heap {

/// Whether this process is the one that has the pager: not a forked child, nor one by vfork, which runs in its parent's memory.
inline bool has_pager() {
  return pager::is_running() && pager::session().self->pid.load(std::memory_order_relaxed) == getpid();
}

/// Memory that forked children still need would go with their parent, so they get it first.
inline void complete_children() {
  if (has_pager()) {
    pager::prepare_to_leave();
  }
}

/// How a process that has the pager leaves its node; set once, as it begins. False if it does not, or had left.
inline bool (*how_to_leave)() = nullptr;

inline bool leave_node() { return how_to_leave != nullptr && has_pager() && how_to_leave(); }

}  // namespace headroom::heap
