// Which pages of hollow blocks (hollow_blocks.h) are zero on storage, so that they come without reading, and which of these the
// program has never touched, so that they do not count as memory that is needed.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// Reserves addresses for the table; false if there are none.
bool open_untouched_pages(uint64_t blocks);

/// All of the block is zero on storage, and these pages of it were never touched, a bit each.
void set_untouched(uint64_t block, uint64_t pages);
/// These pages of `count` blocks are brought into memory.
void note_touched_pages(uint64_t first, uint64_t count, uint64_t pages);
/// The same where they are read: what is zero there costs the disk nothing.
void note_read_pages(uint64_t first, uint64_t count, uint64_t pages);
/// A write of these pages has ended, well or not.
void note_written_pages(uint64_t first, uint64_t count, uint64_t pages);
/// The content of these blocks is given up.
void forget_untouched_pages(uint64_t first, uint64_t count);

/// Something was written where these blocks belong on storage.
void note_storage_written(uint64_t first, uint64_t count);
/// Whether that was ever so.
[[nodiscard]] bool was_storage_written(uint64_t block);

/// Whether all of these pages are zero on storage.
[[nodiscard]] bool are_zero_on_storage(uint64_t block, uint64_t pages);
/// Those of these pages that are.
[[nodiscard]] uint64_t zero_pages_on_storage(uint64_t block, uint64_t pages);
/// Whether most pages of the block were never touched.
[[nodiscard]] bool is_mostly_untouched(uint64_t block);
/// Of all blocks together.
[[nodiscard]] uint64_t untouched_bytes();

/// So many bytes have been read: how many of them the disk had to bring. (Exact for all reads that have ended, not for each.)
uint64_t take_bytes_from_disk(uint64_t bytes);

}  // namespace headroom::pager
