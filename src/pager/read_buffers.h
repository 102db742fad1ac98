// The buffers in which blocks land when they are read, before they get their place in the arena.
//
// A disk that reads straight into the arena needs every page made, cleared and entered into the alias's page table first, one
// at a time. Read into a buffer that is always there instead, a block is made, filled and mapped by one call (UFFDIO_COPY, or a
// write to the memory file): the copy costs 30 us of 256 KiB, and 120 us of page faults are saved. The buffers count as memory
// that the process has outside the arena; their number follows the budget, and a rank that waits for long has none. Where a
// block is one page (arena/whole_blocks.h) there are none, either: to make that page takes one fault, and the disk reads into
// it.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// Reserves addresses for them; false if there are none.
bool open_read_buffers();

/// Whether so many buffers are in use that a read had better wait for one. (Where there are few, reads go past them.)
bool must_wait_for_read_buffer();

/// A buffer for `count` blocks from `first`, at most kTransferBlocks; nullptr if there is none: then read in place.
char* take_read_buffer(uint64_t first, uint64_t count);

/// The buffer that was taken for blocks from `first`; nullptr if they are read in place.
char* read_buffer_of(uint64_t first);
void give_back_read_buffer(uint64_t first);

/// Gives the memory of buffers that are not in use back to the system.
void empty_read_buffers();

}  // namespace headroom::pager
