// fork(), seen from the pager; private to src/pager. What happens is described in fork.cc.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace headroom::pager {

// Called by the pager thread.
/// Waits until the block may be written to, or given up: every child has it.
void wait_until_may_write(uint64_t block);
/// What to do when one of fork_descriptors() is readable.
void serve_forked(int descriptor);
/// Gives the living children all that they have not got.
void complete_children();
/// Before the fork: protects memory and notes what is fresh.
base::Status prepare_fork();

// Called by the thread that forks.
void finish_fork_in_parent();
void finish_fork_in_child();
/// In a child, after its memory was mapped: what its parent had unmapped faults there, too.
void take_access_away_in_child();
/// In a child of a forked child, which needs nobody: closes what would make it look like the child itself.
void finish_fork_in_grandchild();
/// In a child that is about to fork itself: touches everything, so that it has pages of its own to hand down.
void make_private_in_child();

/// A userfaultfd with what the child needs (engine_userfaultfd.cc), or a negative errno value.
int open_child_userfaultfd(bool user_mode_only);

}  // namespace headroom::pager
