// Transfers between blocks and the store: starting them; see transfers.cc.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

#include "pager/state.h"

namespace headroom::pager {

bool can_transfer();
/// How many blocks from `block` on, at most, one transfer can move: up to the end of a stripe of the store.
inline uint64_t transfer_room(uint64_t block) { return kTransferBlocks - block % kTransferBlocks; }
void start_transfer(bool write, uint64_t first, uint64_t count);
/// The same for pages of one block; the memory is the pages'.
void start_page_transfer(bool write, uint64_t block, uint64_t first_page, uint64_t count, void* memory);
/// Reads a block into a buffer.
void start_fill_transfer(uint64_t block, void* buffer);
/// Starts to read `count` blocks from `first`, whose room is reserved.
void start_read(uint64_t first, uint64_t count);

}  // namespace headroom::pager
