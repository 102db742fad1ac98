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
// fault_plan.h decides when that is better than whole blocks; thin_blocks.h, when a block that came whole is divided.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

#include "pager/fault_plan.h"

namespace headroom::pager {

/// Reserves addresses for the table and the buffers; false if there are none.
bool open_single_pages(uint64_t blocks);

/// Makes a page of a block (STORED or SINGLE_PAGES) accessible; false if it waits for storage or room. kWholeBlock: fills the
/// block.
bool serve_page(uint64_t block, uint32_t page, bool write);

/// So many blocks come as a whole since the program jumps about in them: notes that, counts them, and asks for the memory that
/// such blocks take together.
void note_better_whole(uint64_t first, uint64_t count);

/// A page that has been read gets its place.
void place_page(uint64_t block, uint32_t page);
/// Maps a page that was read ahead, unless its first use is to be seen.
void map_page_read_ahead(uint64_t block, uint32_t page);
/// A block that was filled gets what it lacked; it is not mapped.
void fill_done(uint64_t block);
/// The content of a page that has been read; place_page() gives it its place.
const char* content_of_page(uint64_t block, uint32_t page);
/// Whether the content that a fill has read is what was written (checksums.h), before fill_done().
bool fill_is_right(uint64_t block);
/// Whether the block, which is READING, has pages that the program can write.
bool is_being_filled(uint64_t block);

}  // namespace headroom::pager
