// What a forked child is given of a block, and the kernel's calls that put it into the child; private to src/pager; fork.cc
// says what happens.
//
// Called by the pager's thread. `descriptor` is the child's userfaultfd.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// Makes the buffers that the functions below need; false if there is no memory for them.
bool prepare_fork_content();

/// One block of nothing but zeros.
const char* zeros_for_children();

/// One block, for content whose memory is taken away for a moment.
char* room_for_moved_content();

/// The content of a block that is STORED or SINGLE_PAGES, in a buffer that holds until the next call. Ends the process if it
/// cannot be read.
const char* read_content_back(uint64_t block);

/// Copies `bytes` from `source`, or zeros_for_children(), to the child's `address`, leaving pages alone that the child has
/// written itself. 0, or -errno; -ESRCH: the child is gone.
long copy_to_child(int descriptor, uintptr_t address, const char* source, uint64_t bytes);

/// Maps the block's own pages at the child's `address`, but for those that the child has written itself. 0, or -errno: -EFAULT
/// if a page is not there.
long map_in_child(int descriptor, uintptr_t address, uint64_t bytes);

}  // namespace headroom::pager
