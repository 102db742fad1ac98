// See extents.h.
#include "heap/extents.h"

#include <algorithm>

#include "base/system_calls.h"
#include "pager/pager.h"

namespace headroom::heap {
namespace {

using arena::kBlockBytes;
using arena::kPageBytes;
using base::Status;

constexpr uint32_t kNone = 0;  // extent 0 is not used
constexpr int kBins = 40;
constexpr uint32_t kMaxExtents = 1 << 20;
constexpr uint64_t kKeepEach = 32 << 20;
constexpr uint64_t kKeepAll = 64 << 20;
constexpr uint64_t kBlockPages = kBlockBytes / kPageBytes;

struct Extent {
  uint64_t first;  // page
  uint64_t pages;
  uint32_t next;  // in its bin, or in the list of unused entries
  uint32_t previous;
  bool used;
  bool kept;  // free, but its blocks are still claimed and populated
};

Extent* extents = nullptr;
uint32_t* extent_at = nullptr;  // page -> extent, at both ends of each
uint16_t* block_users = nullptr;
uint32_t bins[2][kBins];  // of those that are not kept and of those that are
uint32_t unused_entries = kNone;
uint32_t next_entry = 1;
uint64_t end_page = 0;  // pages of the partition that extents cover
uint64_t kept_bytes = 0;

int bin_of(uint64_t pages) { return 63 - __builtin_clzll(pages); }

uint32_t new_entry() {
  if (unused_entries != kNone) {
    const uint32_t entry = unused_entries;
    unused_entries = extents[entry].next;
    return entry;
  }
  return next_entry < kMaxExtents ? next_entry++ : kNone;
}

void forget_entry(uint32_t entry) {
  extents[entry].next = unused_entries;
  unused_entries = entry;
}

void place(uint32_t entry, uint64_t first, uint64_t pages) {
  extents[entry].first = first;
  extents[entry].pages = pages;
  extent_at[first] = entry;
  extent_at[first + pages - 1] = entry;
}

uint32_t& bin_for(const Extent& extent) { return bins[extent.kept ? 1 : 0][bin_of(extent.pages)]; }

void bin_insert(uint32_t entry) {
  Extent& extent = extents[entry];
  uint32_t& head = bin_for(extent);
  extent.used = false;
  extent.previous = kNone;
  extent.next = head;
  if (head != kNone) {
    extents[head].previous = entry;
  }
  head = entry;
}

void bin_remove(uint32_t entry) {
  const Extent& extent = extents[entry];
  (extent.previous != kNone ? extents[extent.previous].next : bin_for(extent)) = extent.next;
  if (extent.next != kNone) {
    extents[extent.next].previous = extent.previous;
  }
}

void clear_ends(const Extent& extent) {
  extent_at[extent.first] = kNone;
  extent_at[extent.first + extent.pages - 1] = kNone;
}

struct Claims {
  uint64_t fresh = 0;  // blocks that had no user
  bool first_fresh = false;
  bool last_fresh = false;
};

Claims add_users(uint64_t first, uint64_t pages) {
  Claims claims;
  const uint64_t first_block = first / kBlockPages;
  const uint64_t last_block = (first + pages - 1) / kBlockPages;
  for (uint64_t block = first_block; block <= last_block; ++block) {
    const bool fresh = block_users[block]++ == 0;
    claims.fresh += fresh ? 1 : 0;
    claims.first_fresh = block == first_block ? fresh : claims.first_fresh;
    claims.last_fresh = block == last_block ? fresh : claims.last_fresh;
  }
  return claims;
}

/// Ends one use of each block; blocks without users are discarded and their claim given back.
void remove_users(uint64_t first, uint64_t pages) {
  const uint64_t last_block = (first + pages - 1) / kBlockPages;
  uint64_t run = 0;
  for (uint64_t block = first / kBlockPages; block <= last_block + 1; ++block) {
    if (block <= last_block && --block_users[block] == 0) {
      ++run;
      continue;
    }
    if (run > 0) {
      pager::let_touch_ahead(block - run, run, false);
      pager::discard_blocks(block - run, run);
      pager::unclaim_blocks(run);
      run = 0;
    }
  }
}

/// If a free extent of that kind begins or ends at `page`, takes it out and extends [first, first + pages) by it.
void merge_neighbour(uint64_t page, bool kept, uint64_t& first, uint64_t& pages) {
  const uint32_t entry = extent_at[page];
  if (entry == kNone || extents[entry].used || extents[entry].kept != kept) {
    return;
  }
  const Extent neighbour = extents[entry];
  bin_remove(entry);
  clear_ends(neighbour);
  forget_entry(entry);
  const uint64_t border = std::max(neighbour.first, first);
  if (kept && border % kBlockPages != 0) {
    --block_users[border / kBlockPages];  // both had the block that they share
  }
  first = std::min(neighbour.first, first);
  pages += neighbour.pages;
}

/// Enters a free extent, merged with its neighbours of its kind: either `kept`, or neither populated nor claimed.
void insert(uint64_t first, uint64_t pages, bool kept) {
  if (first > 0) {
    merge_neighbour(first - 1, kept, first, pages);
  }
  if (first + pages < end_page) {
    merge_neighbour(first + pages, kept, first, pages);
  }
  const uint32_t entry = new_entry();
  if (entry == kNone) {
    if (kept) {
      kept_bytes -= pages * kPageBytes;
      remove_users(first, pages);
    }
    return;  // the addresses are lost, nothing else
  }
  extents[entry].kept = kept;
  place(entry, first, pages);
  bin_insert(entry);
}

void insert_kept(uint64_t first, uint64_t pages) {
  kept_bytes += pages * kPageBytes;
  insert(first, pages, true);
}

void insert_free(uint64_t first, uint64_t pages) { insert(first, pages, false); }

uint64_t aligned_first(const Extent& extent, uint64_t alignment_pages) {
  return (extent.first + alignment_pages - 1) / alignment_pages * alignment_pages;
}

bool fits(const Extent& extent, uint64_t pages, uint64_t alignment_pages) {
  const uint64_t first = aligned_first(extent, alignment_pages);
  return first - extent.first + pages <= extent.pages;
}

/// The smallest of those looked at, of the smallest size that has any that fits.
uint32_t find_in(const uint32_t* bins_of_kind, uint64_t pages, uint64_t alignment_pages) {
  uint32_t best = kNone;
  for (int bin = bin_of(pages); bin < kBins && best == kNone; ++bin) {
    int looked_at = 0;
    for (uint32_t entry = bins_of_kind[bin]; entry != kNone && looked_at < 64; entry = extents[entry].next, ++looked_at) {
      const Extent& extent = extents[entry];
      if (fits(extent, pages, alignment_pages) && (best == kNone || extent.pages < extents[best].pages)) {
        best = entry;
      }
    }
  }
  return best;
}

/// One that is populated already, if there is any.
uint32_t find_free(uint64_t pages, uint64_t alignment_pages) {
  const uint32_t kept = kept_bytes > 0 ? find_in(bins[1], pages, alignment_pages) : kNone;
  return kept != kNone ? kept : find_in(bins[0], pages, alignment_pages);
}

/// Extends the partition by a free extent of at least `pages` at its end.
Status extend(uint64_t pages) {
  uint64_t missing = pages;
  const uint32_t last = end_page > 0 ? extent_at[end_page - 1] : kNone;
  if (last != kNone && !extents[last].used && !extents[last].kept) {
    missing = pages > extents[last].pages ? pages - extents[last].pages : 0;
  }
  const Status status = pager::grow((end_page + missing) * kPageBytes);
  if (status != Status::kOk) {
    return status;
  }
  const uint64_t first = end_page;
  end_page += missing;
  insert_free(first, missing);
  return Status::kOk;
}

/// The extent that contains `page`. Pages inside an extent have no entry, so the search goes back to its first page.
uint32_t extent_of(uint64_t page) {
  for (uint64_t at = page + 1; at-- > 0;) {
    const uint32_t entry = extent_at[at];
    if (entry != kNone) {
      return page - extents[entry].first < extents[entry].pages ? entry : kNone;
    }
  }
  return kNone;
}

/// Makes [first, first + pages) of a free extent a used one; the pages before and after it stay free.
Placement take(uint32_t entry, uint64_t first, uint64_t pages) {
  bin_remove(entry);
  const Extent found = extents[entry];
  clear_ends(found);
  const uint64_t before = first - found.first;
  const uint64_t after = found.pages - before - pages;
  extents[entry].used = true;
  extents[entry].kept = false;
  place(entry, first, pages);
  Placement placement = {first * kPageBytes, false, false, false, false};
  if (found.kept) {
    kept_bytes -= found.pages * kPageBytes;  // stays claimed: the use passes from the free extent to the allocation
    // Blocks that the split makes two extents share have two users now.
    if (before > 0 && first % kBlockPages != 0) {
      ++block_users[first / kBlockPages];
    }
    if (after > 0 && (first + pages) % kBlockPages != 0) {
      ++block_users[(first + pages) / kBlockPages];
    }
    if (before > 0) {
      insert_kept(found.first, before);
    }
    if (after > 0) {
      insert_kept(first + pages, after);
    }
    return placement;
  }
  if (before > 0) {
    insert_free(found.first, before);
  }
  if (after > 0) {
    insert_free(first + pages, after);
  }
  const Claims claims = add_users(first, pages);
  pager::claim_blocks(claims.fresh);
  placement.inner_zeroed = true;
  placement.first_block_zeroed = claims.first_fresh;
  placement.last_block_zeroed = claims.last_fresh;
  placement.zeroed = claims.first_fresh && claims.last_fresh;
  return placement;
}

}  // namespace

Status open_extents() {
  const uint64_t pages = pager::partition().limit / kPageBytes;
  extents = static_cast<Extent*>(base::reserve_memory(kMaxExtents * sizeof(Extent)));
  extent_at = static_cast<uint32_t*>(base::reserve_memory((pages + 1) * sizeof(uint32_t)));
  block_users = static_cast<uint16_t*>(base::reserve_memory(pages / kBlockPages * sizeof(uint16_t)));
  return extents != nullptr && extent_at != nullptr && block_users != nullptr ? Status::kOk : Status::kNoMemory;
}

base::Result<Placement> allocate_extent(uint64_t bytes, uint64_t alignment) {
  const uint64_t pages = (bytes + kPageBytes - 1) / kPageBytes;
  const uint64_t alignment_pages = alignment / kPageBytes > 0 ? alignment / kPageBytes : 1;
  uint32_t entry = find_free(pages, alignment_pages);
  if (entry == kNone) {
    const Status status = extend(pages + alignment_pages - 1);
    if (status != Status::kOk) {
      return status;
    }
    entry = find_free(pages, alignment_pages);
    if (entry == kNone) {
      return Status::kNoMemory;
    }
  }
  const uint64_t first = aligned_first(extents[entry], alignment_pages);
  if (!pager::give_access_back(first * kPageBytes, pages * kPageBytes)) {
    return Status::kNoMemory;
  }
  return take(entry, first, pages);
}

Status claim_range(uint64_t offset, uint64_t bytes, uint64_t& fresh) {
  fresh = 0;
  const uint64_t end = (offset + bytes + kPageBytes - 1) / kPageBytes;
  if (end > end_page) {
    const Status status = pager::grow(end * kPageBytes);
    if (status != Status::kOk) {
      return status;
    }
    const uint64_t first = end_page;
    end_page = end;
    insert_free(first, end - first);
  }
  for (uint64_t page = offset / kPageBytes; page < end;) {
    if (extent_of(page) == kNone) {
      return Status::kNoMemory;  // addresses that were lost; nothing has been taken yet
    }
    const Extent& extent = extents[extent_of(page)];
    page = extent.first + extent.pages;
  }
  if (!pager::give_access_back(offset, bytes)) {
    return Status::kNoMemory;
  }
  for (uint64_t page = offset / kPageBytes; page < end;) {
    const uint32_t entry = extent_of(page);
    const uint64_t extent_end = extents[entry].first + extents[entry].pages;
    const uint64_t stop = std::min(extent_end, end);
    if (!extents[entry].used) {
      (void)take(entry, page, stop - page);
      fresh += (stop - page) * kPageBytes;
    }
    page = stop;
  }
  return Status::kOk;
}

uint64_t extent_bytes(uint64_t offset) {
  const uint32_t entry = extent_at[offset / kPageBytes];
  const bool begins = entry != kNone && extents[entry].used && extents[entry].first * kPageBytes == offset;
  return begins ? extents[entry].pages * kPageBytes : 0;
}

void free_range(uint64_t offset, uint64_t bytes, bool keep) {
  uint64_t page = offset / kPageBytes;
  const uint64_t wanted_end = (offset + bytes + kPageBytes - 1) / kPageBytes;
  const uint64_t end = std::min(wanted_end, end_page);
  while (page < end) {
    const uint32_t entry = extent_of(page);
    if (entry == kNone) {
      ++page;
      continue;
    }
    if (!extents[entry].used) {
      page = extents[entry].first + extents[entry].pages;
      continue;
    }
    const Extent old = extents[entry];
    clear_ends(old);
    forget_entry(entry);
    const uint64_t old_end = old.first + old.pages;
    const uint64_t cut_end = std::min(end, old_end);
    // The pages that stay in use become extents of their own; a block that a cut divides then has one user more.
    const struct {
      uint64_t first, end;
    } rests[] = {{old.first, page}, {cut_end, old_end}};
    for (const auto& rest : rests) {
      if (rest.first < rest.end) {
        const uint32_t part = new_entry();
        if (part != kNone) {
          extents[part].used = true;
          extents[part].kept = false;
          place(part, rest.first, rest.end - rest.first);
        }
      }
    }
    if (page > old.first && page % kBlockPages != 0) {
      ++block_users[page / kBlockPages];
    }
    if (cut_end < old_end && cut_end % kBlockPages != 0) {
      ++block_users[cut_end / kBlockPages];
    }
    const uint64_t cut = (cut_end - page) * kPageBytes;
    if (keep && cut <= kKeepEach && kept_bytes + cut <= kKeepAll && !pager::is_armed()) {
      pager::end_first_touch(page * kPageBytes, cut);
      insert_kept(page, cut_end - page);
    } else {
      remove_users(page, cut_end - page);
      insert_free(page, cut_end - page);
    }
    page = cut_end;
  }
}

Status resize_extent(uint64_t offset, uint64_t bytes) {
  const uint32_t entry = extent_at[offset / kPageBytes];
  const uint64_t pages = (bytes + kPageBytes - 1) / kPageBytes;
  const Extent old = extents[entry];
  if (pages < old.pages) {
    free_range((old.first + pages) * kPageBytes, (old.pages - pages) * kPageBytes, false);
    return Status::kOk;
  }
  if (pages == old.pages) {
    return Status::kOk;
  }
  const uint64_t end = old.first + old.pages;
  const uint64_t more = pages - old.pages;
  if (end == end_page && extend(more) != Status::kOk) {
    return Status::kNoMemory;
  }
  const uint32_t after = end < end_page ? extent_at[end] : kNone;
  if (after == kNone || extents[after].used || extents[after].kept || extents[after].pages < more ||
      !pager::give_access_back(end * kPageBytes, more * kPageBytes)) {
    return Status::kNoMemory;
  }
  bin_remove(after);
  const Extent follower = extents[after];
  clear_ends(follower);
  forget_entry(after);
  extent_at[end - 1] = kNone;
  place(entry, old.first, pages);
  if (follower.pages > more) {
    insert_free(end + more, follower.pages - more);
  }
  // The block in which the extent ended has this user already.
  const uint64_t first_new = (end + kBlockPages - 1) / kBlockPages * kBlockPages;
  if (first_new < end + more) {
    pager::claim_blocks(add_users(first_new, end + more - first_new).fresh);
  }
  return Status::kOk;
}

void discard_inner(uint64_t offset, uint64_t bytes, uint64_t& first, uint64_t& last) {
  const uint64_t first_block = (offset + kBlockBytes - 1) / kBlockBytes;
  const uint64_t end_block = (offset + bytes) / kBlockBytes;
  first = offset + bytes;
  last = offset + bytes;
  if (first_block < end_block) {
    pager::discard_blocks(first_block, end_block - first_block);
    first = first_block * kBlockBytes;
    last = end_block * kBlockBytes;
  }
}

void trim_kept_extents() {
  if (kept_bytes == 0) {
    return;
  }
  kept_bytes = 0;
  for (uint32_t& head : bins[1]) {
    while (head != kNone) {
      const uint32_t entry = head;
      const Extent extent = extents[entry];
      bin_remove(entry);
      clear_ends(extent);
      forget_entry(entry);
      remove_users(extent.first, extent.pages);
      insert_free(extent.first, extent.pages);
    }
  }
}

}  // namespace headroom::heap
