// Single pages of blocks that are on storage. Random access, which whole blocks would punish, gets these.
//
// A program that jumps about reads a block of 256 KiB for the sake of a few words, and writes it back for one. Where that is
// seen to happen, the page alone is read (block state SINGLE_PAGES): the block stays on storage, and some of its pages are in
// memory, too. They are reserved page by page, mapped page by page, and written back alone if they were written. The disk reads
// into a buffer of its own for each, and the page is made meanwhile: to copy it takes a tenth of that. A block of
// which half has come in this way, one that is read in order after all, and one that is held, is filled: read as a whole into a
// buffer, from where the pages that were missing are copied.
//
// A page that came alone is judged alone, by a second chance (CLOCK): where room is wanted, blocks with such pages are gone
// over in turn. From each, the pages leave that were not used since the last time; the others are hidden from the program, so
// that their next use is seen.
//
// random_access.h decides when that is better than whole blocks.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

inline constexpr uint32_t kWholeBlock = UINT32_MAX;

/// Reserves addresses for the table; false if there are none.
bool open_single_pages(uint64_t blocks);

/// Makes a page of a block (STORED or SINGLE_PAGES) accessible; false if it waits for storage or room. kWholeBlock: fills the
/// block.
bool serve_page(uint64_t block, uint32_t page, bool write);

/// Whether the page is in memory, and access to it was taken away to see its next use.
bool is_hidden_page(uint64_t block, uint32_t page);

/// Evicts those pages of a block in state SINGLE_PAGES that were not used since this was last called, or (`used`) all of them;
/// returns the bytes that are gone or leaving. `some_are_used` becomes true if others could leave.
int64_t evict_pages(uint64_t block, bool used, bool& some_are_used);

/// transfers.cc calls these when such transfers have ended.
void page_read_done(uint64_t block, uint32_t page);
void page_write_done(uint64_t block);
/// So many of its pages could not be written, since storage is full: the block stays.
void page_write_lacked_room(uint64_t block, uint32_t first_page, uint64_t count);
void fill_done(uint64_t block);
/// The content of a page that has been read; page_read_done() gives it its place.
const char* content_of_page(uint64_t block, uint32_t page);
/// Whether the content that a fill has read is what was written (checksums.h), before fill_done().
bool fill_is_right(uint64_t block);
/// Whether the block, which is READING, has pages that the program can write.
bool is_being_filled(uint64_t block);

/// Whether a transfer of single pages of this block is under way.
bool pages_are_moving(uint64_t block);
/// How much memory the pages of a block in state SINGLE_PAGES have.
uint64_t bytes_of_pages(uint64_t block);
/// Forgets the pages of a block in state SINGLE_PAGES that is given up, none of which moves.
void forget_pages(uint64_t block);
/// Whether the pages that are not in memory are, in `content`, which was read from storage, as they were written there.
bool absent_pages_are_right(uint64_t block, const char* content);
/// Copies the pages that are in memory over `content`, which is what storage has of the block.
void overlay_pages(uint64_t block, char* content);

}  // namespace headroom::pager
