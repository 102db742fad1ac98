// fork(), seen from the pager; private to src/pager. What happens is described in fork.cc.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace headroom::pager {

inline constexpr int kMaxForkChildren = 64;

// Called by the pager thread.
/// Gives the block to every living child that has not got it, since it is about to change. False: some child is not ready.
bool give_children_copies(uint64_t block);
/// Whether that is so already: every living child has the block. Changes nothing.
bool is_given_to_all(uint64_t block);
/// If children map the block's memory they get copies instead, and the block memory of its own. False if it is being written
/// out: to be tried again when that has ended.
bool stop_sharing(uint64_t block);
void wait_until_may_write(uint64_t block);
/// Descriptors to wait for (at most 2 * kMaxForkChildren), and what to do when one is readable.
int fork_descriptors(int* out);
void serve_forked(int descriptor);
/// Gives the living children all that they have not got.
void complete_children();
/// Before the fork: protects memory and notes what is fresh.
base::Status prepare_fork();

// Called by the thread that forks.
void finish_fork_in_parent();
void finish_fork_in_child();
/// Closes the child's copies of what the parent keeps for its children.
void drop_children_in_child();
/// In a child, after its memory was mapped: what its parent had unmapped faults there, too.
void take_access_away_in_child();
/// In a child of a forked child, which needs nobody: closes what would make it look like the child itself.
void finish_fork_in_grandchild();
/// Whether there are children that have not got everything.
bool has_fork_children();
/// In a child that is about to fork itself: touches everything, so that it has pages of its own to hand down.
void make_private_in_child();

/// A userfaultfd with what the child needs (engine_userfaultfd.cc), or a negative errno value.
int open_child_userfaultfd(bool user_mode_only);

}  // namespace headroom::pager
