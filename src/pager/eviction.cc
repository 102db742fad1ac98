// Giving memory back: how a dirty block leaves without losing a write. replacement.h chooses the blocks, room.cc the rank.
//
// A dirty block: the word goes from RESIDENT to WRITING (only if nobody holds it), the view is write-protected, then the
// content is written out of the alias; when that is done and nothing was written or held meanwhile, the word goes to STORED
// and the memory is punched. A write in between is caught by the protection, makes the block dirty again, and the eviction
// of that block is given up. Blocks that are all zero are dropped without being stored; clean ones without being written.
#include "pager/eviction.h"

#include <string.h>

#include "base/log.h"
#include "pager/block_transitions.h"
#include "pager/block_words.h"
#include "pager/divided_blocks.h"
#include "pager/forked_children.h"
#include "pager/hollow_blocks.h"
#include "pager/huge_pages.h"
#include "pager/page_eviction.h"
#include "pager/present_pages.h"
#include "pager/room.h"
#include "pager/state.h"
#include "pager/store_room.h"
#include "pager/transfers.h"
#include "pager/untouched_pages.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using namespace arena;
using trace::Counter;

bool is_all_zero(uint64_t block) {
  for (uint32_t page = 0; page < kPagesOfBlock; ++page) {
    if (!is_zero_page(block, page)) {
      return false;
    }
  }
  return true;
}

/// Says in the word of a block in state `from` that its memory is gone, if it is clean and unheld; false if a holder or writer
/// was faster. take_memory() follows.
bool leave(uint64_t block, BlockState from, bool zero) {
  uint64_t before = 0;
  if (!make_transition(word_of(block), [=](uint64_t word) { return next::drop_clean(word, from, zero); }, before)) {
    return false;
  }
  const bool stored = (before & kHasCopy) != 0 && !zero;
  if (!stored) {
    forget_untouched_pages(block, 1);  // what storage has there counts no more
  }
  trace::count(stored ? Counter::kBlocksEvicted : Counter::kBlocksZero);
  trace::count(Counter::kBlocksTwiceOut, stored && (before & (kOutOnce | kOutTwice)) == kOutOnce ? 1 : 0);
  return true;
}

/// Takes the memory of blocks away that have left. Several at once cost a third less than one by one: each time, the other
/// processors are interrupted to forget what they know of the page table.
void take_memory(uint64_t first, uint64_t count) {
  if (count == 0) {
    return;
  }
  for (uint64_t done = 0; done < count;) {
    uint64_t run = count - done;
    state.engine->conceal(view_of_run(*state.partition, first + done, run));
    done += run;
  }
  punch(*state.partition, first, count);
  node::release(*state.session->ledger, *state.session->self, static_cast<int64_t>(count * kBlockBytes));
}

/// RESIDENT and dirty to WRITING and clean; false if held.
bool begin_write(uint64_t block) {
  if (!make_transition(word_of(block), next::begin_writing)) {
    return false;
  }
  state.resident.remove(block);
  return true;
}

void undo_write(uint64_t block) {
  const bool writable = is_given_to_all(block);  // a forked child may still need the content
  state.engine->map(view_of_block(*state.partition, block), writable);
  (void)make_transition(word_of(block), [writable](uint64_t word) { return next::undo_writing(word, writable); });
  state.resident.returned(block);
  state.resident.move_behind_others(block);
  trace::count(Counter::kEvictionsGivenUp);
}

/// After write-protection: a zero block can go at once. WRITING to FRESH.
bool drop_if_zero(uint64_t block) {
  if (!is_all_zero(block)) {
    return false;
  }
  if (!leave(block, kWriting, true)) {
    return false;
  }
  take_memory(block, 1);
  return true;
}

/// Hides as many blocks as are to be watched, but for those that are held; neighbours together. A rank that waits uses nothing.
void hide_some() {
  if (state.idle.load(std::memory_order_relaxed)) {
    return;
  }
  uint64_t first = 0;
  uint64_t count = 0;
  const auto hide_run = [&] {
    for (uint64_t done = 0; done < count;) {
      uint64_t run = count - done;
      state.engine->hide(view_of_run(*state.partition, first + done, run));
      done += run;
    }
    trace::count(Counter::kBlocksHidden, count);
    count = 0;
  };
  for (uint32_t block = state.resident.next_to_hide(); block != kNoBlock; block = state.resident.next_to_hide()) {
    if (!take_access(block)) {
      state.resident.could_not_hide(block);
      continue;
    }
    if (count == 0 || block != first + count) {
      hide_run();
      first = block;
    }
    ++count;
  }
  hide_run();
}

/// The blocks from `block` on that may go together with it, at most `most`.
uint64_t run_of_victims(uint64_t block, uint64_t most) {
  const uint64_t room = transfer_room(block);
  uint64_t count = 1;
  while (count < most && count < room && state.resident.may_leave_together(block, block + count)) {
    ++count;
  }
  return count;
}

/// Drops a run of clean blocks from `block` on, at most `most`; returns how many.
uint64_t drop_run(uint64_t block, uint64_t most) {
  const uint64_t alike = run_of_victims(block, most);
  uint64_t count = 0;
  while (count < alike && set_apart(block + count) && leave(block + count, kResident, false)) {
    state.resident.remove(block + count);
    ++count;
  }
  take_memory(block, count);
  trace::count(Counter::kBlocksDroppedClean, count);
  return count;
}

/// Starts to write out a run of dirty blocks from `block` on; returns the bytes that are gone or leaving. Neighbours go along
/// if they are not known to be in use.
int64_t write_out(uint64_t block) {
  uint64_t first = block;
  uint64_t count = run_of_victims(block, kTransferBlocks);
  if (!set_apart(block)) {
    return 0;
  }
  const bool has_room = find_store_room(block * kBlockBytes);
  if (!has_room) {
    if (!is_all_zero(block)) {
      return 0;
    }
    count = 1;
  }
  for (uint64_t begun = 0; begun < count; ++begun) {
    if ((begun > 0 && looks_hollow(block + begun)) || !begin_write(block + begun)) {
      count = begun;
    }
  }
  if (count == 0) {
    return 0;
  }
  bool written_remotely = false;
  for (uint64_t done = 0; done < count;) {
    uint64_t run = count - done;
    const View view = view_of_run(*state.partition, first + done, run);
    state.engine->protect(view);
    written_remotely = written_remotely || is_written_remotely(view);
    done += run;
  }
  if (written_remotely) {
    for (uint64_t index = 0; index < count; ++index) {
      undo_write(first + index);
    }
    return 0;
  }
  int64_t leaving = 0;
  while (count > 0) {
    if (drop_if_zero(first)) {
      leaving += kBlockBytes;
      ++first;
      --count;
      continue;
    }
    if (!has_room) {  // it was written to before it was protected
      undo_write(first);
      return 0;
    }
    uint64_t run = 1;
    while (run < count && !is_all_zero(first + run)) {
      ++run;
    }
    start_transfer(true, first, run);
    state.leaving_bytes += static_cast<int64_t>(run * kBlockBytes);
    leaving += static_cast<int64_t>(run * kBlockBytes);
    first += run;
    count -= run;
  }
  return leaving;
}

/// Leaves place for the pieces of one write-out and for the read that room is made for.
bool store_is_full_of_work() { return state.store->in_flight() >= Store::kDepth - 8; }

/// The findings of a search for blocks that can leave.
struct Found {
  uint32_t without_room = kNoBlock;  // could not, since storage is full
  bool pages_in_use = false;         // of blocks in state SINGLE_PAGES: these could leave, too
};

/// Evicts what can leave now. `used`: pages that were used lately, too.
int64_t evict_now(int64_t bytes, Found& found, bool used) {
  int64_t leaving = hollow_out_others(bytes);
  uint64_t to_look_at = state.resident.count();
  state.resident.begin_looking();
  while (leaving < bytes && to_look_at-- > 0) {
    hide_some();
    const uint32_t block = state.resident.next_victim();
    if (block == kNoBlock) {
      break;
    }
    const uint64_t word = word_of(block).load(std::memory_order_acquire);
    if (state_of(word) == kSinglePages) {
      const int64_t gone = store_is_full_of_work() ? 0 : evict_pages(block, used, found.pages_in_use);
      found.without_room = gone == 0 && !find_store_room(block * kBlockBytes) ? block : found.without_room;
      if (gone == 0 && state.resident.next_victim() == block) {
        break;
      }
      leaving += gone;
      continue;
    }
    if ((word & kHoldMask) == 0 && (word & kDirty) == 0) {
      const uint64_t dropped = drop_run(block, static_cast<uint64_t>((bytes - leaving - 1) / kBlockBytes) + 1);
      if (dropped == 0) {
        state.resident.move_behind_others(block);
      }
      leaving += static_cast<int64_t>(dropped * kBlockBytes);
      continue;
    }
    if (store_is_full_of_work()) {
      break;
    }
    const int64_t hollowed = looks_hollow(block) ? hollow_out(block) : 0;
    if (hollowed > 0) {
      leaving += hollowed;
      continue;
    }
    const int64_t written = (word & kHoldMask) == 0 ? write_out(block) : 0;
    if (written > 0 && (word & kHasCopy) == 0 && state_of(word_of(block).load(std::memory_order_relaxed)) == kWriting) {
      note_not_hollow();
    }
    if (written == 0 && state.resident.next_victim() == block) {
      found.without_room = (word & kHoldMask) == 0 && !find_store_room(block * kBlockBytes) ? block : found.without_room;
      state.resident.move_behind_others(block);  // held, or there is no room for it on storage
    }
    leaving += written;
  }
  return leaving;
}

}  // namespace

int64_t evict(int64_t bytes, Urgency urgency) {
  Found found;
  int64_t leaving = evict_now(bytes, found, false);
  if (leaving < bytes && found.pages_in_use && urgency != Urgency::kNobodyWaits && state.leaving_bytes == 0) {
    leaving += evict_now(bytes - leaving, found, true);
  }
  // Blocks in motion may leave, or make others leave, when they have come to rest; then this is tried again.
  const bool more_will_come = state.leaving_bytes > 0 || state.store->in_flight() > 0 || state.collects;
  if (leaving > 0 || found.without_room == kNoBlock || urgency == Urgency::kNobodyWaits || more_will_come) {
    return leaving;
  }
  await_store_room(found.without_room * kBlockBytes);
  return evict_now(bytes, found, true);
}

void evict_unneeded(uint64_t first, uint64_t count) {
  int64_t resident = 0;
  for (uint64_t block = first + count; block-- > first;) {  // so that the first leaves first
    join_if_all_are_here(block);
    const uint64_t word = word_of(block).load(std::memory_order_relaxed);
    if (state_of(word) == kResident && (word & kHoldMask) == 0) {  // else others would leave in its place
      state.resident.unneeded(block);
      resident += kBlockBytes;
    }
  }
  (void)evict(resident, Urgency::kNobodyWaits);
}

void write_lacked_room(uint64_t first, uint64_t count) {
  for (uint64_t block = first; block < first + count; ++block) {
    BlockWord& word = word_of(block);
    state.leaving_bytes -= kBlockBytes;
    (void)make_transition(word, next::fail_writing);
    state.resident.returned(block);
    state.resident.move_behind_others(block);
    trace::count(Counter::kEvictionsGivenUp);
  }
}

void write_done(uint64_t first, uint64_t count) {
  uint64_t gone = 0;  // those just before `block`
  for (uint64_t block = first; block < first + count; ++block) {
    BlockWord& word = word_of(block);
    (void)make_transition(word, next::note_copy);
    state.leaving_bytes -= kBlockBytes;
    if (leave(block, kWriting, false)) {
      ++gone;
      continue;
    }
    trace::count(Counter::kEvictionsGivenUp);
    take_memory(block - gone, gone);
    gone = 0;
    (void)make_transition(word, next::end_writing);
    state.resident.returned(block);
    state.resident.move_behind_others(block);  // it is in use
  }
  take_memory(first + count - gone, gone);
}

}  // namespace headroom::pager
