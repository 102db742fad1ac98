// See extent_table.h.
#include "heap/extent_table.h"

#include "base/system_calls.h"

namespace headroom::heap {
namespace {

int bin_of(uint64_t pages) { return 63 - __builtin_clzll(pages); }

bool fits(const Extent& extent, uint64_t pages, uint64_t alignment_pages) {
  const uint64_t first = aligned_first(extent, alignment_pages);
  return first - extent.first + pages <= extent.pages;
}

}  // namespace

bool ExtentTable::open(uint64_t pages) {
  extents_ = static_cast<Extent*>(base::reserve_memory(kMostExtents * sizeof(Extent)));
  extent_at_ = static_cast<uint32_t*>(base::reserve_memory((pages + 1) * sizeof(uint32_t)));
  return extents_ != nullptr && extent_at_ != nullptr;
}

uint32_t ExtentTable::containing(uint64_t page) const {
  // Pages inside an extent have no entry, so the search goes back to its first page.
  for (uint64_t at = page + 1; at-- > 0;) {
    const uint32_t entry = extent_at_[at];
    if (entry != kNoExtent) {
      return page - extents_[entry].first < extents_[entry].pages ? entry : kNoExtent;
    }
  }
  return kNoExtent;
}

uint32_t ExtentTable::take_entry() {
  if (unused_entries_ != kNoExtent) {
    const uint32_t entry = unused_entries_;
    unused_entries_ = extents_[entry].next;
    return entry;
  }
  return next_entry_ < kMostExtents ? next_entry_++ : kNoExtent;
}

void ExtentTable::give_entry_back(uint32_t entry) {
  extents_[entry].next = unused_entries_;
  unused_entries_ = entry;
}

void ExtentTable::place(uint32_t entry, uint64_t first, uint64_t pages) {
  extents_[entry].first = first;
  extents_[entry].pages = pages;
  extent_at_[first] = entry;
  extent_at_[first + pages - 1] = entry;
}

void ExtentTable::clear_ends(const Extent& extent) {
  extent_at_[extent.first] = kNoExtent;
  extent_at_[extent.first + extent.pages - 1] = kNoExtent;
}

uint32_t& ExtentTable::bin_for(const Extent& extent) { return bins_[extent.kept ? 1 : 0][bin_of(extent.pages)]; }

void ExtentTable::list_as_free(uint32_t entry) {
  Extent& extent = extents_[entry];
  uint32_t& head = bin_for(extent);
  extent.used = false;
  extent.previous = kNoExtent;
  extent.next = head;
  if (head != kNoExtent) {
    extents_[head].previous = entry;
  }
  head = entry;
}

void ExtentTable::unlist(uint32_t entry) {
  const Extent& extent = extents_[entry];
  (extent.previous != kNoExtent ? extents_[extent.previous].next : bin_for(extent)) = extent.next;
  if (extent.next != kNoExtent) {
    extents_[extent.next].previous = extent.previous;
  }
}

uint32_t ExtentTable::find_free(uint64_t pages, uint64_t alignment_pages, bool kept) const {
  constexpr int kLooks = 64;
  uint32_t best = kNoExtent;
  for (int bin = bin_of(pages); bin < kBins && best == kNoExtent; ++bin) {
    int looked_at = 0;
    for (uint32_t entry = bins_[kept ? 1 : 0][bin]; entry != kNoExtent && looked_at < kLooks; entry = extents_[entry].next) {
      const Extent& extent = extents_[entry];
      if (fits(extent, pages, alignment_pages) && (best == kNoExtent || extent.pages < extents_[best].pages)) {
        best = entry;
      }
      ++looked_at;
    }
  }
  return best;
}

uint32_t ExtentTable::any_kept() const {
  for (const uint32_t head : bins_[1]) {
    if (head != kNoExtent) {
      return head;
    }
  }
  return kNoExtent;
}

}  // namespace headroom::heap
