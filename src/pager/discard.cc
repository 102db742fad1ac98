// Content that the program gives up: memory that is freed, unmapped, or given back (MADV_DONTNEED, MADV_FREE), and content that
// will be overwritten. Nothing of it is written out or read again.
#include "pager/discard.h"

#include <string.h>
#include <time.h>

#include "base/system_calls.h"
#include "pager/block_transitions.h"
#include "pager/divided_blocks.h"
#include "pager/ended_transfers.h"
#include "pager/fork.h"
#include "pager/fork_copies.h"
#include "pager/forked_children.h"
#include "pager/hold.h"
#include "pager/huge_pages.h"
#include "pager/present_pages.h"
#include "pager/state.h"
#include "pager/touched.h"
#include "pager/untouched_pages.h"
#include "trace/counters.h"

namespace headroom::pager {

using namespace arena;
using trace::Counter;

namespace {

bool is_moving(uint64_t block) {
  const uint64_t now = state_of(word_of(block).load(std::memory_order_relaxed));
  return now == kReading || now == kWriting || (now == kSinglePages && pages_are_moving(block));
}

/// Waits until a block in motion is at rest: the disk may still be writing into its memory or reading from it.
void wait_until_at_rest(uint64_t block) {
  while (is_moving(block)) {
    if (!collect_transfers()) {
      const timespec pause = {0, 50'000};
      (void)base::system_call(SYS_nanosleep, &pause, nullptr);
    }
  }
}

}  // namespace

void forget_content(uint64_t first, uint64_t count, bool resident_too) {
  if (!resident_too && has_fork_children()) {
    return;  // they need the content on storage, and the program did not ask for this
  }
  for (uint64_t block = first; block < first + count; ++block) {
    if (resident_too) {
      join_if_all_are_here(block);
    }
    const uint64_t before = word_of(block).load(std::memory_order_acquire);
    // Blocks stay that a forked child still needs, and those that are held: in use, or pinned because their rights are the
    // program's.
    if (!next::forget_content(before, resident_too) || !give_children_copies(block)) {
      continue;
    }
    const bool was_writable = (before & kWritable) != 0;
    if (was_writable) {
      // Protected first: a write from now on is seen, and makes the block an ordinary one.
      state.engine->protect(view_of_block(*state.partition, block));
    }
    if (make_transition(word_of(block), [=](uint64_t word) { return next::forget_content(word, resident_too); })) {
      forget_untouched_pages(block, 1);
      trace::count(Counter::kBlocksForgotten);
    } else if (was_writable) {
      state.engine->unprotect(view_of_block(*state.partition, block));  // it is held by now
    }
  }
}

void discard(uint64_t first, uint64_t count) {
  forget_huge_pages(first, count);
  forget_thin_blocks(first, count);
  for (uint64_t block = first; block < first + count; ++block) {
    BlockWord& word = word_of(block);
    wait_until_at_rest(block);
    if (state_of(word.load(std::memory_order_relaxed)) == kFresh && (word.load(std::memory_order_relaxed) & kPinned) == 0) {
      state.resident.forget(block);
      forget_untouched_pages(block, 1);
      continue;
    }
    wait_until_may_write(block);
    wait_until_at_rest(block);  // meanwhile others were served
    unpin(block);
    if (!set_apart(block)) {  // its neighbours are in use: it stays as memory that is zero
      memset(reinterpret_cast<void*>(state.partition->alias + block * kBlockBytes), 0, kBlockBytes);
      trace::count(Counter::kBlocksDiscarded);
      continue;
    }
    const uint64_t before = word.load(std::memory_order_relaxed);
    uint64_t seen = word.load(std::memory_order_relaxed);
    while (!word.compare_exchange_weak(seen, seen & (kHoldMask | kWriteHoldMask), std::memory_order_acq_rel)) {
    }
    trace::count(Counter::kBlocksDiscarded);
    if (state_of(before) == kSinglePages) {
      forget_pages(block);
    } else if (state_of(before) == kResident) {
      state.resident.remove(block);
      state.engine->conceal(view_of_block(*state.partition, block));
      punch(*state.partition, block, 1);
      node::release(*state.session->ledger, *state.session->self, kBlockBytes);
    }
    state.resident.forget(block);
    forget_untouched_pages(block, 1);
  }
  count_touched();
}

}  // namespace headroom::pager
