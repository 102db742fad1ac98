// Evicting single pages, each judged alone; see single_pages.h.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// Evicts those pages of a block in state SINGLE_PAGES that were not used since this was last called, or (`used`) all of them;
/// returns the bytes that are gone or leaving. A block that came whole, and is used in many pages, becomes whole again.
/// `some_are_used` becomes true if others could leave, or now all of it.
int64_t evict_pages(uint64_t block, bool used, bool& some_are_used);
void page_write_done(uint64_t block);
/// So many of its pages could not be written, since storage is full: the block stays.
void page_write_lacked_room(uint64_t block, uint32_t first_page, uint64_t count);

}  // namespace headroom::pager
