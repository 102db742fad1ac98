// Which pages of the blocks in state SINGLE_PAGES are in memory; see single_pages.h.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

#include "arena/arena.h"
#include "pager/state.h"

namespace headroom::pager {

static_assert(kPagesOfBlock == 64, "a word has a bit for each page");
inline constexpr uint64_t kAllPages = UINT64_MAX;

/// The pages of one block, a bit each.
struct Pages {
  uint64_t present;
  uint64_t dirty;   // of these
  uint64_t hidden;  // of these: not used since access to them was taken away
  uint64_t asked;   // were hidden when the search for room came by
  uint64_t proven;  // were used after they were hidden
  uint64_t reading;
  uint64_t leaving;  // will be free when the transfers have ended
  uint16_t writes;   // transfers under way
  uint16_t visits;   // of the search for room
  bool surveyed;     // the block came whole, and the search for room has not come by since it was divided
};
static_assert(sizeof(Pages) == 64, "one line of the cache");

namespace detail {
extern Pages* table_of_pages;
}

/// Reserves addresses for the table; false if there are none.
bool open_present_pages(uint64_t blocks);
inline Pages& pages_of(uint64_t block) { return detail::table_of_pages[block]; }

inline uint64_t bit_of(uint32_t page) { return uint64_t{1} << page; }
inline uint64_t run_of_pages(uint32_t first, uint64_t count) {
  return (count == kPagesOfBlock ? kAllPages : (uint64_t{1} << count) - 1) << first;
}
inline int64_t bytes_of(uint64_t pages) {
  return static_cast<int64_t>(__builtin_popcountll(pages)) * int64_t{arena::kPageBytes};
}
arena::View view_of_page(uint64_t block, uint32_t page);
char* alias_of_page(uint64_t block, uint64_t page);
/// Whether all of a page that is in memory is zero.
bool is_zero_page(uint64_t block, uint32_t page);
/// Changes the block's state, and other bits.
void set_state(uint64_t block, uint64_t clear, uint64_t set);

/// Calls `each(first, count)` for each run of pages.
template <typename Each>
void for_each_run(uint64_t pages, Each each) {
  while (pages != 0) {
    const auto first = static_cast<uint32_t>(__builtin_ctzll(pages));
    uint32_t count = 1;
    while (first + count < kPagesOfBlock && (pages & bit_of(first + count)) != 0) {
      ++count;
    }
    pages &= ~run_of_pages(first, count);
    each(first, count);
  }
}

/// Whether the page is in memory; the program may have no access to it.
bool is_present_page(uint64_t block, uint32_t page);
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
