// What forked children are given of a block, before it changes: fork.cc says how a fork goes on.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

#include "pager/forked_children.h"

namespace headroom::pager {

/// Gives the block to every living child that has not got it, since it is about to change. False: some child is not ready.
bool give_children_copies(uint64_t block);
/// If children map the block's memory they get copies instead, and the block memory of its own. False if it is being written
/// out: to be tried again when that has ended.
bool stop_sharing(uint64_t block);

/// Gives this child the block, unless it has it.
void give_copy(Child& child, uint64_t block);
/// False if the child is gone, or had to be killed.
bool copy_block(Child& child, uint64_t block, const char* source);
/// The child has ended; or it would go on without what it needs, and is killed.
void forget_after(Child& child, long error);
/// The block's content, wherever it is; where it is on storage, in a buffer that holds until the next call. Waits for a
/// transfer under way, and serves others meanwhile.
const char* content_of(uint64_t block);

}  // namespace headroom::pager
