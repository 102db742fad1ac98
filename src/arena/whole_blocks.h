// Making a block of one page of 256 KiB instead of 64 small ones.
//
// To make 64 pages, enter them into the file, map them, unmap them and give them back takes the kernel more than twice as long
// (0.55 s a GiB) as the same with one page of 256 KiB. In a file of a tmpfs mounted with huge=always, memory that is written or
// asked for at once becomes one page if there is nothing there yet: since Linux 6.14 one of the size that was written, since
// 6.17 the largest up to 2 MiB that nobody has a part of. A page larger than a block could not be given back with its block. So
// meanwhile the other half of the 512 KiB to which the block belongs must have some page, and if it has none it gets one for
// that time (the guard).
//
// The guard is taken away again, so nobody else may begin to use the page meanwhile. The pager's thread therefore makes blocks
// whole only where memory is watched, and only beside a block that is at rest: in no transfer, and mapped nowhere. While
// nothing is watched it makes whole blocks ahead of the program's first touch, two at a time, with a guard that stays
// (pager/first_touch.cc).
//
// Everything else that brings memory into the file goes through mappings, which are advised to have small pages.
#pragma once

#include <cstdint>

#include "arena/arena.h"

namespace headroom::arena {

/// Neighbouring blocks.
struct Run {
  uint64_t first;
  uint64_t count;
};

/// Gives a block that has no memory zero-filled memory: one page if blocks are pages and its neighbour is at rest, which those
/// of `at_rest` are. kNoMemory if the kernel refuses. For the pager's thread, while memory is watched.
base::Status make_whole(const Partition& partition, uint64_t block, Run at_rest);

/// Makes memory of the partition from `offset` on with that content, without mapping it; of small pages. kNoMemory if the
/// kernel refuses. For where blocks are not pages.
base::Status write_content(const Partition& partition, uint64_t offset, const char* content, uint64_t bytes);

/// Copies a page of this process into the partition; false if it cannot be read or the kernel has no memory.
bool copy_page(const Partition& partition, uint64_t offset, uintptr_t page);

}  // namespace headroom::arena
