// Single pages of blocks that are on storage: what random access gets, which whole blocks would punish.
//
// A program that jumps about reads a block of 256 KiB for the sake of a few words, and writes it back for one. Where that is
// seen to happen, the page alone is read (block state SINGLE_PAGES): the block stays on storage, and some of its pages are in
// memory, too. They are reserved page by page, mapped page by page, and written back alone if they were written. A block of
// which half has come in this way, one that is read in order after all, and one that somebody holds, is filled: read as a
// whole into a buffer, from where the pages that were missing are copied.
//
// A rank that jumps about in memory that would fit if it had all of the node's does better to have it all for a turn: reading a
// block takes no longer than reading kWholePaysAt pages alone, and everything else in it is free. So a block of which so many
// were read alone in a turn is read as a whole, in that turn and the following ones, and what such blocks need together is
// said (needed_in_turn), so that ranks whose blocks do not fit side by side take turns (sched/preemption.h).
//
// A fault counts as random if it continues no stream and the program has computed for less than kShortNs since its last fault
// on storage: what was read then was of little use. Not with sigsegv, which cannot map single pages.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

inline constexpr uint32_t kWholeBlock = UINT32_MAX;

/// Reserves addresses for the table; false if there are none.
bool open_single_pages(uint64_t blocks);

/// What is counted from now on belongs to another turn.
void begin_turn_of_pages();
/// How often in this turn a page was read alone that had been before in it, and how many different ones were.
uint64_t pages_came_back();
uint64_t pages_read_in_turn();

/// Notes a fault on storage; `in_order`: it continues a stream.
void note_storage_fault(bool in_order);
/// Whether a fault at that page of a block that is on storage should read the page alone.
bool prefers_single_page(uint64_t block, uint32_t page);

/// Of a block that is read as a whole because the program jumps about in it: has those beside it read too in which it did.
/// False if there are none.
bool read_ahead_in_jumps(uint64_t block);

/// Makes a page of a block (STORED or SINGLE_PAGES) accessible; false if it waits for storage or room. kWholeBlock: fills the
/// block.
bool serve_page(uint64_t block, uint32_t page, bool write);

/// Evicts the pages of a block in state SINGLE_PAGES; returns the bytes that are gone or leaving.
int64_t evict_pages(uint64_t block);

/// What transfers.cc calls when such transfers have ended.
void page_read_done(uint64_t block, uint32_t page);
void page_write_done(uint64_t block);
void fill_done(uint64_t block);
/// Whether what a fill has read is what was written (checksums.h), before fill_done().
bool fill_is_right(uint64_t block);
/// Whether the block, which is READING, has pages that the program can write.
bool is_being_filled(uint64_t block);

/// Whether a transfer of single pages of this block is under way.
bool pages_are_moving(uint64_t block);
/// How much memory the pages of a block in state SINGLE_PAGES have.
uint64_t bytes_of_pages(uint64_t block);
/// Forgets the pages of a block in state SINGLE_PAGES that is given up, none of which moves.
void forget_pages(uint64_t block);
/// Whether the pages that are not in memory are in `content`, read from storage, what was written there.
bool absent_pages_are_right(uint64_t block, const char* content);
/// Copies the pages that are in memory over `content`, which is what storage has of the block.
void overlay_pages(uint64_t block, char* content);

}  // namespace headroom::pager
