// The places of allocations in the partition.
//
// Extents are runs of 4 KiB pages, used or free, found by a table from page to extent (both ends are entered, so that
// neighbours merge in constant time) and by lists of free extents by size. Page grain, not block grain: arrays that all
// began at a multiple of 256 KiB would fight for the same cache sets.
//
// Several extents may share a block at their ends, so blocks are counted by user: the first user claims a block's budget
// (pager), the last one's end discards its content.
//
// As glibc does, freed extents up to 32 MiB stay populated for the next allocation of their size while memory is enough
// (64 MiB in all), so that a loop that allocates and frees does not fault its pages in each time.
//
// Not thread-safe: heap.cc holds one lock around everything here. Metadata is never evictable.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace headroom::heap {

struct Placement {
  uint64_t offset;          // in the partition
  bool zeroed;              // all of it is known to be zero
  bool first_block_zeroed;  // if not: whether at least the inner blocks are, and the first and the last one
  bool last_block_zeroed;
  bool inner_zeroed;
};

/// Reserves the tables. Once, before anything else.
base::Status open_extents();

/// Finds `bytes` (rounded up to pages) aligned to `alignment` bytes (a power of two of at least a page).
base::Result<Placement> allocate_extent(uint64_t bytes, uint64_t alignment);

/// Makes [offset, offset + bytes), in whole pages, used as far as it is not; `fresh` is how many bytes were not. Pages that
/// were free have any content. kNoMemory if it cannot be had.
base::Status claim_range(uint64_t offset, uint64_t bytes, uint64_t& fresh);

/// The size in bytes of the used extent that begins at `offset`, or 0 if none does.
uint64_t extent_bytes(uint64_t offset);

/// Frees the used pages in [offset, offset + bytes), which may be parts of extents. `keep`: they may stay populated.
void free_range(uint64_t offset, uint64_t bytes, bool keep);

/// Makes the used extent at `offset` `bytes` long, in place. kNoMemory if the pages that follow are in use.
base::Status resize_extent(uint64_t offset, uint64_t bytes);

/// Gives up the blocks that lie whole in [offset, offset + bytes), e.g. for MADV_DONTNEED, and returns through `first`/`last`
/// the byte range that was covered (the rest at both ends must be zeroed by hand).
void discard_inner(uint64_t offset, uint64_t bytes, uint64_t& first, uint64_t& last);

/// Gives the populated free extents back, once memory is short.
void trim_kept_extents();

}  // namespace headroom::heap
