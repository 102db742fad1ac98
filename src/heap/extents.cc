// See extents.h.
#include "heap/extents.h"

#include <algorithm>

#include "heap/block_users.h"
#include "heap/extent_table.h"
#include "pager/pager.h"

namespace headroom::heap {
namespace {

using arena::kBlockBytes;
using arena::kPageBytes;
using base::Status;

constexpr uint64_t kKeepEach = 32 << 20;
constexpr uint64_t kKeepAll = 64 << 20;

constinit ExtentTable table;
constinit BlockUsers block_users;
uint64_t end_page = 0;  // pages of the partition that extents cover
uint64_t kept_bytes = 0;

/// A free extent is none any more.
void remove_from_table(uint32_t entry) {
  table.unlist(entry);
  table.clear_ends(table[entry]);
  table.give_entry_back(entry);
}

/// If a free extent of that kind begins or ends at `page`, takes it out and extends [first, first + pages) by it.
void merge_neighbour(uint64_t page, bool kept, uint64_t& first, uint64_t& pages) {
  const uint32_t entry = table.at_end(page);
  if (entry == kNoExtent || table[entry].used || table[entry].kept != kept) {
    return;
  }
  const Extent neighbour = table[entry];
  remove_from_table(entry);
  const uint64_t border = std::max(neighbour.first, first);
  if (kept) {
    block_users.join(border);  // both had the block that they share
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
  const uint32_t entry = table.take_entry();
  if (entry == kNoExtent) {
    if (kept) {
      kept_bytes -= pages * kPageBytes;
      block_users.remove(first, pages);
    }
    return;  // the addresses are lost, nothing else
  }
  table[entry].kept = kept;
  table.place(entry, first, pages);
  table.list_as_free(entry);
}

void insert_kept(uint64_t first, uint64_t pages) {
  kept_bytes += pages * kPageBytes;
  insert(first, pages, true);
}

void insert_free(uint64_t first, uint64_t pages) { insert(first, pages, false); }

/// One that is populated already, if there is any.
uint32_t find_free(uint64_t pages, uint64_t alignment_pages) {
  const uint32_t kept = kept_bytes > 0 ? table.find_free(pages, alignment_pages, true) : kNoExtent;
  return kept != kNoExtent ? kept : table.find_free(pages, alignment_pages, false);
}

/// Extends the partition by a free extent of at least `pages` at its end.
Status extend(uint64_t pages) {
  uint64_t missing = pages;
  const uint32_t last = end_page > 0 ? table.at_end(end_page - 1) : kNoExtent;
  if (last != kNoExtent && !table[last].used && !table[last].kept) {
    missing = pages > table[last].pages ? pages - table[last].pages : 0;
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

/// Makes [first, first + pages) of a free extent a used one; the pages before and after it stay free.
Placement take(uint32_t entry, uint64_t first, uint64_t pages) {
  table.unlist(entry);
  const Extent found = table[entry];
  table.clear_ends(found);
  const uint64_t before = first - found.first;
  const uint64_t after = found.pages - before - pages;
  table[entry].used = true;
  table[entry].kept = false;
  table.place(entry, first, pages);
  Placement placement = {first * kPageBytes, false, false, false, false};
  if (found.kept) {
    kept_bytes -= found.pages * kPageBytes;  // stays claimed: the use passes from the free extent to the allocation
    // Blocks that the split makes two extents share have two users now.
    if (before > 0) {
      block_users.divide(first);
    }
    if (after > 0) {
      block_users.divide(first + pages);
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
  const FreshBlocks fresh = block_users.add(first, pages);
  pager::claim_blocks(fresh.count);
  placement.inner_zeroed = true;
  placement.first_block_zeroed = fresh.first;
  placement.last_block_zeroed = fresh.last;
  placement.zeroed = fresh.first && fresh.last;
  return placement;
}

}  // namespace

Status open_extents() {
  const uint64_t pages = pager::partition().limit / kPageBytes;
  return table.open(pages) && block_users.open(pages) ? Status::kOk : Status::kNoMemory;
}

base::Result<Placement> allocate_extent(uint64_t bytes, uint64_t alignment) {
  const uint64_t pages = (bytes + kPageBytes - 1) / kPageBytes;
  const uint64_t alignment_pages = alignment / kPageBytes > 0 ? alignment / kPageBytes : 1;
  uint32_t entry = find_free(pages, alignment_pages);
  if (entry == kNoExtent) {
    const Status status = extend(pages + alignment_pages - 1);
    if (status != Status::kOk) {
      return status;
    }
    entry = find_free(pages, alignment_pages);
    if (entry == kNoExtent) {
      return Status::kNoMemory;
    }
  }
  const uint64_t first = aligned_first(table[entry], alignment_pages);
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
    if (table.containing(page) == kNoExtent) {
      return Status::kNoMemory;  // addresses that were lost; nothing has been taken yet
    }
    const Extent& extent = table[table.containing(page)];
    page = extent.first + extent.pages;
  }
  if (!pager::give_access_back(offset, bytes)) {
    return Status::kNoMemory;
  }
  for (uint64_t page = offset / kPageBytes; page < end;) {
    const uint32_t entry = table.containing(page);
    const uint64_t extent_end = table[entry].first + table[entry].pages;
    const uint64_t stop = std::min(extent_end, end);
    if (!table[entry].used) {
      (void)take(entry, page, stop - page);
      fresh += (stop - page) * kPageBytes;
    }
    page = stop;
  }
  return Status::kOk;
}

uint64_t extent_bytes(uint64_t offset) {
  const uint32_t entry = table.at_end(offset / kPageBytes);
  const bool begins = entry != kNoExtent && table[entry].used && table[entry].first * kPageBytes == offset;
  return begins ? table[entry].pages * kPageBytes : 0;
}

void free_range(uint64_t offset, uint64_t bytes, bool keep) {
  uint64_t page = offset / kPageBytes;
  const uint64_t wanted_end = (offset + bytes + kPageBytes - 1) / kPageBytes;
  const uint64_t end = std::min(wanted_end, end_page);
  while (page < end) {
    const uint32_t entry = table.containing(page);
    if (entry == kNoExtent) {
      ++page;
      continue;
    }
    if (!table[entry].used) {
      page = table[entry].first + table[entry].pages;
      continue;
    }
    const Extent old = table[entry];
    table.clear_ends(old);
    table.give_entry_back(entry);
    const uint64_t old_end = old.first + old.pages;
    const uint64_t cut_end = std::min(end, old_end);
    // The pages that stay in use become extents of their own; a block that a cut divides then has one user more.
    const struct {
      uint64_t first, end;
    } rests[] = {{old.first, page}, {cut_end, old_end}};
    for (const auto& rest : rests) {
      if (rest.first < rest.end) {
        const uint32_t part = table.take_entry();
        if (part != kNoExtent) {
          table[part].used = true;
          table[part].kept = false;
          table.place(part, rest.first, rest.end - rest.first);
        }
      }
    }
    if (page > old.first) {
      block_users.divide(page);
    }
    if (cut_end < old_end) {
      block_users.divide(cut_end);
    }
    const uint64_t cut = (cut_end - page) * kPageBytes;
    if (keep && cut <= kKeepEach && kept_bytes + cut <= kKeepAll && !pager::is_armed()) {
      pager::end_first_touch(page * kPageBytes, cut);
      insert_kept(page, cut_end - page);
    } else {
      block_users.remove(page, cut_end - page);
      insert_free(page, cut_end - page);
    }
    page = cut_end;
  }
}

Status resize_extent(uint64_t offset, uint64_t bytes) {
  const uint32_t entry = table.at_end(offset / kPageBytes);
  const uint64_t pages = (bytes + kPageBytes - 1) / kPageBytes;
  const Extent old = table[entry];
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
  const uint32_t after = end < end_page ? table.at_end(end) : kNoExtent;
  if (after == kNoExtent || table[after].used || table[after].kept || table[after].pages < more ||
      !pager::give_access_back(end * kPageBytes, more * kPageBytes)) {
    return Status::kNoMemory;
  }
  const Extent follower = table[after];
  remove_from_table(after);
  table.clear_ends(old);
  table.place(entry, old.first, pages);
  if (follower.pages > more) {
    insert_free(end + more, follower.pages - more);
  }
  // The block in which the extent ended has this user already.
  const uint64_t first_new = (end + kBlockPages - 1) / kBlockPages * kBlockPages;
  if (first_new < end + more) {
    pager::claim_blocks(block_users.add(first_new, end + more - first_new).count);
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
  for (uint32_t entry = table.any_kept(); entry != kNoExtent; entry = table.any_kept()) {
    const Extent extent = table[entry];
    remove_from_table(entry);
    block_users.remove(extent.first, extent.pages);
    insert_free(extent.first, extent.pages);
  }
}

}  // namespace headroom::heap
