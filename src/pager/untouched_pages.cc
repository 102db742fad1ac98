// See untouched_pages.h.
#include "pager/untouched_pages.h"

#include <algorithm>

#include "arena/arena.h"
#include "base/system_calls.h"

namespace headroom::pager {
namespace {

/// Of a block, a bit for each page.
struct Known {
  uint64_t zero_on_storage;
  uint64_t untouched;  // of these
  bool was_written;
};

Known* table = nullptr;
bool is_used = false;  // else nothing is known to be zero
uint64_t untouched_pages = 0;
uint64_t zero_bytes_read = 0;  // and not taken

void keep(uint64_t block, uint64_t zero_on_storage, uint64_t untouched) {
  Known& known = table[block];
  untouched_pages -= static_cast<uint64_t>(__builtin_popcountll(known.untouched));
  known.zero_on_storage &= zero_on_storage;
  known.untouched &= untouched;
  untouched_pages += static_cast<uint64_t>(__builtin_popcountll(known.untouched));
}

template <typename Each>
void for_each_block(uint64_t first, uint64_t count, Each each) {
  for (uint64_t block = first; is_used && block < first + count; ++block) {
    if (table[block].zero_on_storage != 0) {
      each(block);
    }
  }
}

}  // namespace

bool open_untouched_pages(uint64_t blocks) {
  table = static_cast<Known*>(base::reserve_memory(blocks * sizeof *table));
  return table != nullptr;
}

void set_untouched(uint64_t block, uint64_t pages) {
  is_used = true;
  keep(block, 0, 0);
  table[block].zero_on_storage = UINT64_MAX;
  table[block].untouched = pages;
  untouched_pages += static_cast<uint64_t>(__builtin_popcountll(pages));
}

void note_touched_pages(uint64_t first, uint64_t count, uint64_t pages) {
  for_each_block(first, count, [pages](uint64_t block) { keep(block, UINT64_MAX, ~pages); });
}

void note_read_pages(uint64_t first, uint64_t count, uint64_t pages) {
  for_each_block(first, count, [pages](uint64_t block) {
    const auto zero = static_cast<uint64_t>(__builtin_popcountll(table[block].zero_on_storage & pages));
    zero_bytes_read += zero * arena::kPageBytes;
    keep(block, UINT64_MAX, ~pages);
  });
}

void note_written_pages(uint64_t first, uint64_t count, uint64_t pages) {
  for_each_block(first, count, [pages](uint64_t block) { keep(block, ~pages, ~pages); });
}

void forget_untouched_pages(uint64_t first, uint64_t count) { note_written_pages(first, count, UINT64_MAX); }

void note_storage_written(uint64_t first, uint64_t count) {
  for (uint64_t block = first; block < first + count; ++block) {
    table[block].was_written = true;
  }
}

bool was_storage_written(uint64_t block) { return table[block].was_written; }

bool are_zero_on_storage(uint64_t block, uint64_t pages) { return is_used && (table[block].zero_on_storage & pages) == pages; }

uint64_t zero_pages_on_storage(uint64_t block, uint64_t pages) { return is_used ? table[block].zero_on_storage & pages : 0; }

bool is_mostly_untouched(uint64_t block) {
  constexpr int kMost = 40;  // of 64: with as many others it is no hollow block any more
  return is_used && __builtin_popcountll(table[block].untouched) >= kMost;
}

uint64_t untouched_bytes() { return untouched_pages * arena::kPageBytes; }

uint64_t take_bytes_from_disk(uint64_t bytes) {
  const uint64_t zeros = std::min(zero_bytes_read, bytes);
  zero_bytes_read -= zeros;
  return bytes - zeros;
}

}  // namespace headroom::pager
