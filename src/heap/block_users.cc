// See block_users.h.
#include "heap/block_users.h"

#include "base/system_calls.h"
#include "pager/pager.h"

namespace headroom::heap {

bool BlockUsers::open(uint64_t pages) {
  users_ = static_cast<uint16_t*>(base::reserve_memory((pages / kBlockPages + 1) * sizeof(uint16_t)));
  return users_ != nullptr;
}

FreshBlocks BlockUsers::add(uint64_t first, uint64_t pages) {
  FreshBlocks fresh;
  const uint64_t first_block = first / kBlockPages;
  const uint64_t last_block = (first + pages - 1) / kBlockPages;
  for (uint64_t block = first_block; block <= last_block; ++block) {
    const bool is_fresh = users_[block]++ == 0;
    fresh.count += is_fresh ? 1 : 0;
    fresh.first = block == first_block ? is_fresh : fresh.first;
    fresh.last = block == last_block ? is_fresh : fresh.last;
  }
  return fresh;
}

void BlockUsers::remove(uint64_t first, uint64_t pages) {
  const uint64_t last_block = (first + pages - 1) / kBlockPages;
  uint64_t run = 0;
  for (uint64_t block = first / kBlockPages; block <= last_block + 1; ++block) {
    if (block <= last_block && --users_[block] == 0) {
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

}  // namespace headroom::heap
