// See hollow_blocks.h.
#include "pager/hollow_blocks.h"

#include <errno.h>
#include <linux/falloc.h>
#include <unistd.h>

#include <algorithm>

#include "pager/block_transitions.h"
#include "pager/block_words.h"
#include "pager/checksums.h"
#include "pager/divided_blocks.h"
#include "pager/forked_children.h"
#include "pager/huge_pages.h"
#include "pager/present_pages.h"
#include "pager/state.h"
#include "pager/store_room.h"
#include "pager/untouched_pages.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using namespace arena;
using trace::Counter;

constexpr int kMostPages = 24;  // of a hollow block: one of which half has come is filled (single_pages.cc)

constexpr int kSure = 32;    // hollow blocks in excess of others
constexpr int kSurest = 64;  // so many are remembered
constexpr int kDoubt = 4;    // a block that was none weighs as much as so many

constexpr int kMostLooks = 64;             // at a time: a millisecond, if all of these blocks are zero but for a few pages
constexpr uint64_t kLengthen = 256 << 20;  // of the file at once: few calls, and what is not written takes no room

int sureness = 0;
uint64_t next_look = 0;       // the block at which the search for others goes on
uint64_t looked_in_vain = 0;  // blocks in a row
alignas(64) const char zero_page[kPageBytes] = {};
bool can_lengthen = true;  // files of the store, as far as is known
bool can_zero = true;      // a range of one

/// The pages that are not zero; once these are not few, no more are looked at.
uint64_t pages_not_zero(uint64_t block) {
  uint64_t found = 0;
  for (uint32_t page = 0; page < kPagesOfBlock && has_few_pages(found); ++page) {
    found |= is_zero_page(block, page) ? 0 : bit_of(page);
  }
  return found;
}

bool allocate(int descriptor, int mode, uint64_t offset, uint64_t bytes) {
  long result = 0;
  do {
    result = base::system_call(SYS_fallocate, descriptor, mode, offset, bytes);
  } while (result == -EINTR);
  if (result == -EOPNOTSUPP) {
    (mode == 0 ? can_lengthen : can_zero) = false;
  }
  return !base::is_error(result);
}

/// Makes a file of the store so long, and somewhat longer: nothing can be read behind its end. (Not by ftruncate(), which might
/// make it shorter than a write under way has made it.)
bool lengthen_file(int descriptor, uint64_t end) {
  static uint64_t lengths[kMostFiles] = {};
  uint64_t* length = lengths;
  for (int file = 0; file < state.files.count && state.files.descriptors[file] != descriptor; ++file) {
    ++length;
  }
  if (*length >= end) {
    return true;
  }
  const uint64_t longer = (end + kLengthen - 1) / kLengthen * kLengthen;
  if (base::file_may_have(longer) && allocate(descriptor, 0, longer - kPageBytes, kPageBytes)) {
    *length = longer;
    return true;
  }
  return allocate(descriptor, 0, end - kPageBytes, kPageBytes);
}

/// Makes storage read as zeros where a block belongs of which it has no content. Where nothing was ever written it does so
/// anyway; elsewhere the kernel zeroes it, and waits for all transfers of the file that are under way.
bool zero_storage_of(uint64_t block) {
  const bool was_written = was_storage_written(block);
  if (!can_lengthen || (was_written && !can_zero) || !find_store_room(block * kBlockBytes)) {
    return false;
  }
  const StorePlace place = place_of(state.files, block * kBlockBytes);
  return (!was_written || allocate(place.descriptor, FALLOC_FL_ZERO_RANGE, place.offset, kBlockBytes)) &&
         lengthen_file(place.descriptor, place.offset + kBlockBytes);
}

bool may_be_hollow(uint64_t block) {
  return state.engine->kind() != base::EngineChoice::kSigsegv && view_of_block(*state.partition, block).bytes == kBlockBytes;
}

/// What there is of a hollow block from now on. `kept`: the pages that have memory, all of which were changed.
void begin_hollow(uint64_t block, uint64_t kept) {
  for (uint32_t page = 0; page < kPagesOfBlock; ++page) {
    note_written(block * kBlockBytes + page * kPageBytes, zero_page, kPageBytes);
  }
  Pages& pages = pages_of(block);
  pages = {};
  pages.present = kept;
  pages.dirty = kept;
  set_untouched(block, ~kept);
  trace::count(Counter::kBlocksHollow);
}

bool list_hollow(uint64_t block, uint64_t kept) {
  const uint64_t word = word_of(block).load(std::memory_order_acquire);
  const bool is_plain = state_of(word) == kFresh && (word & (kHoldMask | kPinned)) == 0;
  if (!is_plain || !may_be_hollow(block) || !zero_storage_of(block)) {
    return false;
  }
  begin_hollow(block, kept);
  set_state(block, kMarker, kSinglePages | kHasCopy);
  state.resident.expect(block, false);
  state.resident.loaded(block, false);
  return true;
}

}  // namespace

bool has_few_pages(uint64_t pages) { return __builtin_popcountll(pages) <= kMostPages; }

bool looks_hollow(uint64_t block) {
  const uint64_t word = word_of(block).load(std::memory_order_relaxed);
  const uint64_t hindrances = kHoldMask | kHasCopy | kShared | kUndefined | kMarker;
  if (state_of(word) != kResident || (word & hindrances) != 0 || (word & kDirty) == 0 || !may_be_hollow(block) ||
      !can_lengthen) {
    return false;
  }
  const uint64_t found = pages_not_zero(block);
  return found != 0 && has_few_pages(found);  // one that is all zero needs no room on storage (eviction.cc)
}

int64_t hollow_out(uint64_t block) {
  if (!is_given_to_all(block) || !zero_storage_of(block) || !set_apart(block)) {
    return 0;
  }
  const View view = view_of_block(*state.partition, block);
  if (take_access(block)) {
    state.engine->hide(view);
  }
  if (!make_transition(word_of(block), next::divide)) {
    return 0;  // it is held by now
  }
  Pages& pages = pages_of(block);
  pages = {};
  pages.present = kAllPages;
  pages.dirty = kAllPages;
  pages.hidden = kAllPages;
  // Hidden, and protected, too: the program may have locked it in memory behind our back. It cannot write any more, so what is
  // zero stays so.
  state.engine->protect(view);
  const uint64_t kept = is_written_remotely(view) ? kAllPages : pages_not_zero(block);
  if (!has_few_pages(kept) || kept == 0) {
    make_whole_again(block);
    return 0;
  }
  begin_hollow(block, kept);
  pages.hidden = kept;
  pages.asked = kept;
  change_word(word_of(block), 0, kHasCopy);
  for_each_run(~kept, [&](uint32_t first, uint32_t count) {
    punch_bytes(*state.partition, block * kBlockBytes + first * kPageBytes, count * kPageBytes);
  });
  node::release(*state.session->ledger, *state.session->self, bytes_of(~kept));
  state.resident.visited(block);
  sureness = std::min(sureness + 1, kSurest);
  looked_in_vain = sureness == kSure ? 0 : looked_in_vain;
  return bytes_of(~kept);
}

int64_t hollow_out_others(int64_t bytes) {
  const uint64_t blocks = state.partition->committed.load(std::memory_order_relaxed) / kBlockBytes;
  int64_t leaving = 0;
  for (int looks = 0; new_blocks_are_hollow() && leaving < bytes && looked_in_vain < blocks && looks < kMostLooks; ++looks) {
    const uint64_t block = next_look++ % blocks;
    const int64_t left = looks_hollow(block) ? hollow_out(block) : 0;
    looked_in_vain = left > 0 ? 0 : looked_in_vain + 1;
    leaving += left;
  }
  return leaving;
}

void note_not_hollow() { sureness = std::max(sureness - kDoubt, 0); }

bool new_blocks_are_hollow() { return sureness >= kSure; }

bool begin_without_pages(uint64_t block) { return list_hollow(block, 0); }

bool list_as_hollow(uint64_t block, uint64_t populated) {
  if (!has_few_pages(populated) || populated == 0 || !list_hollow(block, populated)) {
    return false;
  }
  if (!state.engine->serves_kernel()) {
    for_each_run(populated, [&](uint32_t first, uint32_t count) {
      state.engine->map({view_of_page(block, first).address, count * kPageBytes}, true);
    });
  }
  return true;
}

}  // namespace headroom::pager
