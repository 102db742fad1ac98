// See page_eviction.h.
#include "pager/page_eviction.h"

#include "pager/block_words.h"
#include "pager/divided_blocks.h"
#include "pager/page_uses.h"
#include "pager/present_pages.h"
#include "pager/state.h"
#include "pager/store_room.h"
#include "pager/transfers.h"
#include "pager/untouched_pages.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using namespace arena;
using trace::Counter;

/// Pages that were seen in use are asked again every so many visits: to see a use costs a fault.
constexpr uint32_t kVisitsOfHotPages = 16;

PageUses uses;

void hide_pages(uint64_t block, uint64_t hidden) {
  Pages& pages = pages_of(block);
  pages.hidden |= hidden;
  if (pages.hidden == pages.present) {
    state.engine->hide(view_of_block(*state.partition, block));
    return;
  }
  for_each_run(hidden, [&](uint32_t first, uint32_t count) {
    state.engine->hide({view_of_page(block, first).address, count * kPageBytes});
  });
}

/// The pages that stay: their next use is to be seen.
void hide_for_next_visit(uint64_t block) {
  Pages& pages = pages_of(block);
  const bool all = ++pages.visits % kVisitsOfHotPages == 0 || PageUses::is_sampled(block);
  hide_pages(block, pages.present & ~(all ? 0 : pages.proven));
  pages.asked = pages.hidden;
}

/// Notes which of the pages that were asked have been used since.
void note_uses(uint64_t block) {
  Pages& pages = pages_of(block);
  const uint64_t again = pages.asked & ~pages.hidden;
  if (PageUses::is_sampled(block)) {
    uses.note_visit(pages.asked, again, pages.proven);
  }
  pages.proven |= again;
  pages.asked = 0;
}

/// Takes the memory of these pages away, all of which are clean; the block is listed again if it has others.
void drop_pages(uint64_t block, uint64_t gone) {
  Pages& pages = pages_of(block);
  if (gone == pages.present && pages.reading == 0) {
    const uint64_t before = word_of(block).load(std::memory_order_relaxed);
    set_state(block, 0, kStored | out_marks(before));
    punch(*state.partition, block, 1);
    node::release(*state.session->ledger, *state.session->self, bytes_of(gone));
    trace::count(Counter::kBlocksEvicted);
    pages = {};
    return;
  }
  for_each_run(gone, [&](uint32_t first, uint32_t count) {
    punch_bytes(*state.partition, block * kBlockBytes + first * kPageBytes, count * kPageBytes);
  });
  node::release(*state.session->ledger, *state.session->self, bytes_of(gone));
  pages.present &= ~gone;
  pages.hidden &= ~gone;
  pages.proven &= ~gone;
  trace::count(Counter::kSinglePagesStayed, static_cast<uint64_t>(__builtin_popcountll(pages.present)));
  hide_for_next_visit(block);
  state.resident.visited(block);
}

void write_pages(uint64_t block, uint64_t written) {
  Pages& pages = pages_of(block);
  pages.dirty &= ~written;
  state.store->begin_batch();
  for_each_run(written, [&](uint32_t first, uint32_t count) {
    ++pages.writes;
    start_page_transfer(true, block, first, count, alias_of_page(block, first));
  });
  state.store->end_batch();
}

/// A write has ended. When it was the last one of those that were under way, the pages leave that were not used meanwhile.
void end_write(uint64_t block) {
  Pages& pages = pages_of(block);
  if (--pages.writes > 0) {
    return;
  }
  pages.proven |= pages.leaving & ~pages.hidden;
  const uint64_t gone = pages.leaving & pages.hidden & ~pages.dirty;
  state.leaving_bytes -= bytes_of(pages.leaving);
  pages.leaving = 0;
  if (gone != 0) {
    drop_pages(block, gone);
    return;
  }
  trace::count(Counter::kEvictionsGivenUp);
  hide_for_next_visit(block);
  state.resident.visited(block);
}

/// Whether the store can take so many more writes, one for each run of pages. One place stays: making room is followed by a
/// read.
bool has_place_for_writes(uint64_t pages) {
  const uint64_t run_ends = pages & ~(pages >> 1);
  return state.store->in_flight() + __builtin_popcountll(run_ends) < Store::kDepth;
}

/// Those of these pages that need not be written, since they are zero, and zero on storage; the program cannot write them.
uint64_t unchanged_pages(uint64_t block, uint64_t pages) {
  uint64_t found = 0;
  for_each_run(zero_pages_on_storage(block, pages), [&](uint32_t first, uint32_t count) {
    for (uint32_t page = first; page < first + count; ++page) {
      found |= is_zero_page(block, page) ? bit_of(page) : 0;
    }
  });
  return found;
}

}  // namespace

int64_t evict_pages(uint64_t block, bool used, bool& some_are_used) {
  Pages& pages = pages_of(block);
  if (pages.reading != 0 || pages.writes != 0) {
    state.resident.move_behind_others(block);
    return 0;
  }
  note_uses(block);
  const bool surveyed = pages.surveyed;
  if (surveyed && join_unless_thin(block)) {
    some_are_used = true;
    return 0;
  }
  const uint64_t in_use = pages.present & ~pages.hidden;
  const bool all = used || !(surveyed || PageUses::is_sampled(block) || uses.some_are_hot());
  const uint64_t gone = all ? pages.present : pages.hidden;
  some_are_used = some_are_used || gone != pages.present;
  if (gone == 0) {
    hide_for_next_visit(block);
    state.resident.visited(block);
    return 0;
  }
  // What of a block is not here must be on storage; of one that was never there, nothing is missing yet.
  const bool was_never_stored = (word_of(block).load(std::memory_order_relaxed) & kHasCopy) == 0;
  uint64_t written = was_never_stored ? pages.present : gone & pages.dirty;
  if (written != 0 && !has_place_for_writes(written)) {
    return 0;
  }
  if (all) {
    hide_pages(block, pages.present);
  }
  // Hidden as most of them are: the program may have locked them in memory behind our back, and of a block that was never
  // stored those that are used are written, too.
  for_each_run(written, [&](uint32_t first, uint32_t count) {
    state.engine->protect({view_of_page(block, first).address, count * kPageBytes});
  });
  if (written != 0 && is_written_remotely(view_of_block(*state.partition, block))) {
    state.resident.move_behind_others(block);
    return 0;
  }
  const uint64_t unchanged = was_never_stored ? 0 : unchanged_pages(block, written);
  if (has_place_for_writes(written & ~unchanged)) {  // without them there may be more runs of pages
    pages.dirty &= ~unchanged;
    written &= ~unchanged;
  }
  if (written != 0 && !find_store_room(block * kBlockBytes)) {
    state.resident.move_behind_others(block);
    return 0;
  }
  if (surveyed) {
    note_thin(block, in_use);
  }
  state.resident.remove(block);
  if (written == 0) {
    drop_pages(block, gone);
    return bytes_of(gone);
  }
  pages.leaving = gone;
  state.leaving_bytes += bytes_of(gone);
  trace::count(Counter::kSinglePagesWritten, static_cast<uint64_t>(__builtin_popcountll(written)));
  write_pages(block, written);
  return bytes_of(gone);
}

void page_write_lacked_room(uint64_t block, uint32_t first_page, uint64_t count) {
  for (uint32_t page = first_page; page < first_page + count; ++page) {
    pages_of(block).dirty |= bit_of(page);
  }
  end_write(block);
}

void page_write_done(uint64_t block) {
  change_word(word_of(block), 0, kHasCopy);
  end_write(block);
}

}  // namespace headroom::pager
