// Blocks that came whole and are judged page by page from then on; see thin_blocks.h for when, and single_pages.h for what
// happens to the pages.
//
// A block that is hidden and in use is *divided*: all its pages are in memory, hidden, and the one that is used is mapped. When
// the search for room comes by (page_eviction.h) it shows how many were used. If these are few, the others leave; else the
// block is made whole again.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// Reserves addresses for the notes about blocks; false if there are none.
bool open_divided_blocks(uint64_t blocks);

/// Notes that a fault came to the block. A thread that walks from block to block is no reason to divide them, or to read pages
/// alone: it may come to other pages each time (sparse_readers.h tells).
void note_visited_block(uint64_t block);
/// Divides a block that is RESIDENT, hidden, and in use, if its pages are worth a survey and nothing stands against it;
/// false if it stays whole.
bool divide_if_worth(uint64_t block);
/// Whether few pages of the block, which a thread has not walked to, are expected to be used, since it was so with blocks
/// beside.
bool is_expected_thin(uint64_t block);
/// The content of these blocks is given up: what was known of them is not true of what comes next.
void forget_thin_blocks(uint64_t first, uint64_t count);
/// An access comes to that page of a block in state SINGLE_PAGES (kWholeBlock: to all of it). Makes the block whole again, with
/// no access to it, if nothing of it is missing and it is better whole: it is to be held, or gone over in order. False if not.
bool join_if_worth(uint64_t block, uint32_t page);
/// The search for room has come to a block that is surveyed. Makes it whole again, as above, if many of its pages were used, or
/// if the rank waits, which cuts the survey short; false if few were: these are to stay, the others to leave.
bool join_unless_thin(uint64_t block);
/// The survey of the block has ended: these were used, and the others leave.
void note_thin(uint64_t block, uint64_t used);
/// So many pages of a block that has come page by page are in memory that it is filled.
void note_filled(uint64_t block, uint64_t present);
/// Makes a block in state SINGLE_PAGES whole, of which nothing is missing and no page moves; the program has no access to it.
void make_whole_again(uint64_t block);
/// A block in state SINGLE_PAGES of which nothing is missing is whole again, if no page of it moves.
void join_if_all_are_here(uint64_t block);

}  // namespace headroom::pager
