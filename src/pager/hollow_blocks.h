// Blocks of which the program has touched few pages, so that the others are zero: of a hash table that is sized beforehand,
// say. Held whole they would take up to 64 times what the program needs.
//
// A hollow block keeps the pages that are not zero, one by one (single_pages.h); the others have no memory, and storage is made
// to read as zeros there, which costs no transfer. They are found where a block would be written out for the first time; where
// memory becomes short, and a block and the one before it have few pages yet; and once many were found, at a block's first
// touch. Not with sigsegv, which cannot map single pages, and not on file systems without fallocate(); where these cannot zero
// a range of a file, only where nothing was ever written.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// Whether few pages of a block that was never written out are not zero, as far as can be told while the program may write to
/// it.
[[nodiscard]] bool looks_hollow(uint64_t block);
/// Makes a resident block that looks hollow one. Returns the bytes that are free from now on; 0 if it stays as it is.
int64_t hollow_out(uint64_t block);

/// If blocks turn out to be hollow: makes those hollow that have been given memory as a whole before that was known, as far as
/// so many bytes are wanted. Returns the bytes that are free from now on. Pages that the program has touched need not leave
/// then.
int64_t hollow_out_others(int64_t bytes);
/// A block was written out as a whole, or filled, for the first time: it was no hollow one, or is none any more.
void note_not_hollow();
/// Whether blocks that were touched lately have turned out to be hollow, so that the next ones probably are.
[[nodiscard]] bool new_blocks_are_hollow();
/// Makes a block hollow that is touched for the first time, without any page yet; false if it cannot be.
bool begin_without_pages(uint64_t block);

/// Whether these pages are so few that a block that has no others may be hollow.
[[nodiscard]] bool has_few_pages(uint64_t pages);
/// While this process arms: lists a block of which only these pages have memory, as touched and changed; false if it is to be
/// listed as a whole.
bool list_as_hollow(uint64_t block, uint64_t populated);

}  // namespace headroom::pager
