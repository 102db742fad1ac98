// Changes of a block's word, and the reservation of room, that most of the pager needs; see arena/arena.h for the word.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

#include "arena/arena.h"

namespace headroom::pager {

/// Reserves room for so many blocks, if it is free.
bool reserve_blocks(uint64_t count);
/// Changes the bits of a word that are the pager's, keeping holds that are added meanwhile.
void change_word(arena::BlockWord& word, uint64_t clear, uint64_t set);
/// Says in the block's word that it is not mapped, before it is hidden; false if it is held, or was not mapped.
bool take_access(uint64_t block);
/// The mark that a block with this word, which leaves, gets for having been out.
uint64_t out_marks(uint64_t word);
/// True if some process writes into the view by cross-memory attach right now (heap/system_call_wrappers.cc).
bool is_written_remotely(arena::View view);

}  // namespace headroom::pager
