// Huge pages, from "memory is enough" to "memory is short"; see huge_pages.cc.
//
// Private to src/pager; for the pager thread alone, but for
// may_have_huge_pages(), which any thread may ask.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// Whether this kernel keeps to what the engine needs of it. (Before Linux 6.12 it maps huge pages as a whole again although
/// the mapping says not to; where its own accesses are not served, blocks then vanish from the page table while it counts on
/// them.)
bool may_have_huge_pages();
/// Before memory is watched: no mapping of it is a huge one from now on.
void map_in_small_pages();
/// Sees to it that the block can be evicted or given up without touching others: splits the huge page that it is a part of, if
/// need be. False if that cannot be done safely now (a part of the page is in use, say).
bool set_apart(uint64_t block);
/// The blocks' content is given up all together, so that huge pages that they cover whole need not be split.
void forget_huge_pages(uint64_t first, uint64_t count);

}  // namespace headroom::pager
