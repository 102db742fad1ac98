// Tells whether the program jumps about in its memory, and whether single pages or whole blocks serve it better.
//
// A fault counts as random if it continues no stream and the program has computed for less than kShortNs since its last fault
// on storage: the content that was read then was of little use. Not with sigsegv, which cannot map single pages.
//
// A rank that jumps about in memory that would fit if it had all of the node's does better to have it all for a turn: reading a
// block takes no longer than reading a few pages alone (store_speed.h), and everything else in it is free. So a block of which
// so many pages were read alone in a turn is read as a whole, in that turn and the following ones. needed_in_turn() says how
// much memory such blocks need together, so that ranks whose blocks do not fit side by side take turns (sched/preemption.h).
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// Reserves addresses for the notes about each block; false if there are none.
bool open_random_access(uint64_t blocks);

/// Pages that are counted from now on belong to another turn.
void begin_turn_of_pages();
/// How often in this turn a page was read alone that had been before in it, and how many different ones were.
uint64_t pages_came_back();
uint64_t pages_read_in_turn();

/// Processor time of this process's threads but the pager's, as of the last fault on storage.
uint64_t program_computed_ns();
/// Notes a fault on storage; `in_order`: it continues a stream.
void note_storage_fault(bool in_order);
/// Decides whether a fault at that page of a block that is on storage is to read the page alone, and notes the access.
/// `few_are_used`: few of the block's pages are expected to be.
bool choose_single_page(uint64_t block, uint32_t page, bool few_are_used);

/// For a block that is read as a whole because the program jumps about in it: decides how many of the following blocks, in
/// which it does so, too, are to be read, and notes it.
uint64_t choose_blocks_ahead(uint64_t block);

/// Notes that the page was asked for. True if one beside it was a moment ago: then this is no random access.
bool note_asked_page(uint64_t block, uint32_t page);
/// Whether the pages of that block were asked for one after the other, three by now, however many other threads' faults were in
/// between. (By chance one random access in 4096 looks like this.)
bool continues_in_block(uint64_t block, uint32_t page);
/// Notes that the page is read alone.
void note_page_read(uint64_t block, uint32_t page);
/// Decides whether the block is to be read as a whole, although the access is random, and notes it; the rank then asks for the
/// memory that this takes.
bool choose_whole_read(uint64_t block);
/// A sparse reader was found (sparse_readers.h): the next faults on storage, for some time, are better served by single pages,
/// but for those that clearly go on in order.
void prefer_single_pages();
/// Whether that time lasts.
bool expects_sparse_readers();
/// Takes the wish for room, if a sparse reader was found since this was called the last time: whole blocks that the reader has
/// passed, and will use as little of again, are to make room for the pages of others.
bool take_wish_for_room();
/// A block of single pages was read in order after all.
void doubt_random_access();

}  // namespace headroom::pager
