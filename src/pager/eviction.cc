// Giving memory back: how a dirty block leaves without losing a write. Which blocks: see replacement.h; who gives way: room.cc.
//
// A dirty block: the word goes from RESIDENT to WRITING (only if nobody holds it), the view is write-protected, then the
// content is written out of the alias; when that is done and nothing was written or held meanwhile, the word goes to STORED
// and the memory is punched. A write in between is caught by the protection, makes the block dirty again, and the eviction
// of that block is given up. Blocks that are all zero are dropped without being stored; clean ones without being written.
#include <string.h>

#include "base/log.h"
#include "pager/fork.h"
#include "pager/state.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using namespace arena;
using node::Member;
using trace::Counter;

bool is_all_zero(uint64_t block) {
  const auto* words = reinterpret_cast<const uint64_t*>(state.partition->alias + block * kBlockBytes);
  for (uint64_t index = 0; index < kBlockBytes / sizeof(uint64_t); index += 8) {
    if ((words[index] | words[index + 1] | words[index + 2] | words[index + 3] | words[index + 4] | words[index + 5] |
         words[index + 6] | words[index + 7]) != 0) {
      return false;
    }
  }
  return true;
}

/// Takes memory away from a block that is in state `from`, clean, and unheld; false if a holder or writer was faster.
bool drop(uint64_t block, BlockState from, bool zero) {
  BlockWord& word = word_of(block);
  uint64_t before = word.load(std::memory_order_acquire);
  uint64_t after = 0;
  do {
    if ((before & kHoldMask) != 0 || (before & kDirty) != 0 || state_of(before) != from) {
      return false;
    }
    const bool stored = (before & kHasCopy) != 0 && !zero;
    const uint64_t kept = before & (kOutOnce | kOutTwice);
    after = stored ? kStored | kHasCopy | kept | out_marks(before) : kFresh | kept;
  } while (!word.compare_exchange_weak(before, after, std::memory_order_acq_rel));
  state.engine->conceal(view_of_block(*state.partition, block));
  punch(*state.partition, block, 1);
  node::release(*state.session->ledger, *state.session->self, kBlockBytes);
  trace::count(state_of(after) == kStored ? Counter::kBlocksEvicted : Counter::kBlocksZero);
  return true;
}

/// RESIDENT and dirty to WRITING and clean; false if held.
bool begin_write(uint64_t block, bool keep) {
  BlockWord& word = word_of(block);
  uint64_t before = word.load(std::memory_order_acquire);
  do {
    if ((before & kHoldMask) != 0 || state_of(before) != kResident || (before & kDirty) == 0) {
      return false;
    }
  } while (!word.compare_exchange_weak(before,
                                       (before & ~(kStateMask | kDirty | kWritable | kHasCopy)) | kWriting | (keep ? kKeep : 0),
                                       std::memory_order_acq_rel));
  state.resident.remove(block);
  return true;
}

void undo_write(uint64_t block) {
  BlockWord& word = word_of(block);
  const bool writable = may_write(block);  // a forked child may still need the content
  const uint64_t set = kResident | kDirty | kMapped | (writable ? kWritable : 0);
  uint64_t before = word.load(std::memory_order_relaxed);
  state.engine->map(view_of_block(*state.partition, block), writable);
  while (!word.compare_exchange_weak(before, (before & ~(kStateMask | kKeep)) | set, std::memory_order_acq_rel)) {
  }
  state.resident.returned(block);
  state.resident.look_later(block);
  trace::count(Counter::kEvictionsGivenUp);
}

/// After write-protection: a zero block can go at once. WRITING to FRESH.
bool drop_if_zero(uint64_t block) {
  if (!is_all_zero(block)) {
    return false;
  }
  return drop(block, kWriting, true);
}

/// Hides the block from the program, unless somebody holds it.
void hide(uint64_t block) {
  if (take_access(block)) {
    state.engine->hide(view_of_block(*state.partition, block));
    trace::count(Counter::kBlocksHidden);
  }
}

/// Hides as many blocks as are to be watched. A rank that waits uses nothing.
void hide_some() {
  if (state.idle.load(std::memory_order_relaxed)) {
    return;
  }
  for (uint32_t block = state.resident.next_to_hide(); block != kNoBlock; block = state.resident.next_to_hide()) {
    hide(block);
  }
}

/// Starts to write out a run of dirty blocks from `block` on; returns the bytes that are gone, leaving, or (with `keep`) being
/// written. Neighbours go along if they are not known to be in use.
int64_t write_out(uint64_t block, bool keep) {
  const bool was_hidden = state.resident.is_hidden(block);
  uint64_t first = block;
  uint64_t count = 1;
  while (count < transfer_room(block) && state.resident.are_alike(block, block + count) &&
         (!was_hidden || state.resident.is_hidden(block + count))) {
    ++count;
  }
  if (!is_apart(block)) {
    return 0;
  }
  for (uint64_t begun = 0; begun < count; ++begun) {
    if (!begin_write(block + begun, keep)) {
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
    uint64_t run = 1;
    while (run < count && !is_all_zero(first + run)) {
      ++run;
    }
    start_transfer(true, first, run);
    if (!keep) {
      state.leaving_bytes += static_cast<int64_t>(run * kBlockBytes);
    }
    leaving += static_cast<int64_t>(run * kBlockBytes);
    first += run;
    count -= run;
  }
  return leaving;
}

bool store_is_full_of_work() { return state.store->in_flight() >= Store::kDepth - 8; }

}  // namespace

bool take_access(uint64_t block) {
  BlockWord& word = word_of(block);
  uint64_t before = word.load(std::memory_order_acquire);
  do {
    if ((before & kHoldMask) != 0 || (before & kMapped) == 0) {
      return false;
    }
  } while (!word.compare_exchange_weak(before, before & ~(kMapped | kWritable), std::memory_order_acq_rel));
  return true;
}

uint64_t out_marks(uint64_t word) {
  if ((word & kOutOnce) != 0 && (word & kOutTwice) == 0) {
    trace::count(Counter::kBlocksTwiceOut);
  }
  return (word & kOutOnce) != 0 ? kOutTwice : kOutOnce;
}

bool is_written_remotely(View view) {
  const int32_t self = state.session->self->pid.load(std::memory_order_relaxed);
  for (const Member& member : state.session->ledger->members) {
    // seq_cst: the writer stores its target before it touches memory, we protect before we look; one of us sees the other.
    if (member.remote_write_target.load(std::memory_order_seq_cst) == self && is_alive(member) &&
        view.address < member.remote_write_end.load(std::memory_order_relaxed) &&
        member.remote_write_begin.load(std::memory_order_relaxed) < view.address + view.bytes) {
      return true;
    }
  }
  return false;
}

int64_t evict(int64_t bytes) {
  int64_t leaving = 0;
  uint64_t to_look_at = state.resident.count();
  while (leaving < bytes && to_look_at-- > 0) {
    hide_some();
    const uint32_t block = state.resident.next_victim();
    if (block == kNoBlock) {
      break;
    }
    const uint64_t word = word_of(block).load(std::memory_order_acquire);
    if (state_of(word) == kSinglePages) {
      const int64_t gone = store_is_full_of_work() ? 0 : evict_pages(block);
      if (gone == 0 && state.resident.next_victim() == block) {
        break;
      }
      leaving += gone;
      continue;
    }
    if ((word & kHoldMask) == 0 && (word & kDirty) == 0) {
      if (is_apart(block) && drop(block, kResident, false)) {
        state.resident.remove(block);
        trace::count(Counter::kBlocksDroppedClean);
        leaving += kBlockBytes;
      } else {
        state.resident.look_later(block);
      }
      continue;
    }
    if (store_is_full_of_work()) {
      break;
    }
    const int64_t written = (word & kHoldMask) == 0 ? write_out(block, false) : 0;
    if (written == 0 && state.resident.next_victim() == block) {
      state.resident.look_later(block);  // held
    }
    leaving += written;
  }
  state.early_credit_bytes += leaving;
  return leaving;
}

void evict_unneeded(uint64_t first, uint64_t count) {
  int64_t resident = 0;
  for (uint64_t block = first + count; block-- > first;) {  // so that the first leaves first
    if (state_of(word_of(block).load(std::memory_order_relaxed)) == kResident) {
      state.resident.unneeded(block);
      resident += kBlockBytes;
    }
  }
  (void)evict(resident);
}

void forget_content(uint64_t first, uint64_t count) {
  for (uint64_t block = first; block < first + count; ++block) {
    uint64_t before = word_of(block).load(std::memory_order_acquire);
    const bool resident = state_of(before) == kResident;
    // Kept is what a forked child still needs, and what is held: in use, or pinned because its rights are the program's.
    if ((!resident && state_of(before) != kStored) || (before & kHoldMask) != 0 || !may_write(block)) {
      continue;
    }
    const bool was_writable = resident && (before & kWritable) != 0;
    if (was_writable) {
      // Protected first: a write from now on is seen, and makes the block an ordinary one.
      state.engine->protect(view_of_block(*state.partition, block));
    }
    const uint64_t after =
        resident ? (before & ~(kDirty | kHasCopy | kWritable)) | kUndefined : kFresh | (before & (kOutOnce | kOutTwice));
    if (word_of(block).compare_exchange_strong(before, after, std::memory_order_acq_rel)) {
      trace::count(Counter::kBlocksForgotten);
    } else if (was_writable) {
      state.engine->unprotect(view_of_block(*state.partition, block));  // somebody holds it now
    }
  }
}

void write_back_idle() {
  if (!state.armed || !state.idle.load(std::memory_order_relaxed)) {
    return;
  }
  const base::EvictChoice policy = base::settings().evict;
  if (policy == base::EvictChoice::kAggressive) {
    const int64_t leaving = evict(INT64_MAX);
    trace::count(Counter::kBlocksEvictedWaiting, static_cast<uint64_t>(leaving) / kBlockBytes);
    return;
  }
  if (policy == base::EvictChoice::kLazy) {
    return;
  }
  // auto: write back early, so that giving way later costs nothing; drop late. Only who will be asked first, and no more than
  // had to be evicted before: a rank whose memory stays would write the same blocks again and again, and pay for each first
  // write after. A write-out that is given up puts its block at the end of the list, so the number of looks is bounded.
  if (!blocked_last()) {
    return;
  }
  uint64_t to_look_at = state.resident.count();
  const auto resident_bytes = static_cast<int64_t>(to_look_at * kBlockBytes);
  state.early_credit_bytes = state.early_credit_bytes < resident_bytes ? state.early_credit_bytes : resident_bytes;
  uint32_t block = state.resident.first();
  while (block != kNoBlock && to_look_at-- > 0 && state.store->in_flight() < 8 && state.early_credit_bytes > 0) {
    const uint32_t after = state.resident.after(block);
    const uint64_t word = word_of(block).load(std::memory_order_relaxed);
    if ((word & (kDirty | kHoldMask)) == kDirty) {
      const int64_t written = write_out(block, true);
      state.early_credit_bytes -= written;
      trace::count(Counter::kBlocksWrittenEarly, static_cast<uint64_t>(written) / kBlockBytes);
      block = written > 0 ? state.resident.first() : after;
      continue;
    }
    block = after;
  }
}

void write_done(uint64_t first, uint64_t count) {
  for (uint64_t block = first; block < first + count; ++block) {
    BlockWord& word = word_of(block);
    uint64_t before = word.load(std::memory_order_relaxed);
    while ((before & kDirty) == 0 && !word.compare_exchange_weak(before, before | kHasCopy, std::memory_order_acq_rel)) {
    }
    const bool keep = (before & kKeep) != 0;
    if (!keep) {
      state.leaving_bytes -= kBlockBytes;
      if (drop(block, kWriting, false)) {
        continue;
      }
      trace::count(Counter::kEvictionsGivenUp);
    }
    before = word.load(std::memory_order_relaxed);
    while (!word.compare_exchange_weak(before, (before & ~(kStateMask | kKeep)) | kResident, std::memory_order_acq_rel)) {
    }
    state.resident.returned(block);
    if (!keep) {
      state.resident.look_later(block);  // it is in use
    }
  }
}

namespace {

bool is_moving(uint64_t block) {
  const uint64_t now = state_of(word_of(block).load(std::memory_order_relaxed));
  return now == kReading || now == kWriting || (now == kSinglePages && pages_are_moving(block));
}

/// What is in motion comes to rest: the disk may still be writing into or reading from the memory.
void wait_until_at_rest(uint64_t block) {
  while (is_moving(block)) {
    if (!collect_transfers()) {
      base::futex_wait(&state.pending_count, static_cast<uint32_t>(state.pending_count), 50'000, false);
    }
  }
}

}  // namespace

void discard(uint64_t first, uint64_t count) {
  forget_huge_pages(first, count);
  for (uint64_t block = first; block < first + count; ++block) {
    BlockWord& word = word_of(block);
    wait_until_at_rest(block);
    if (state_of(word.load(std::memory_order_relaxed)) == kFresh && (word.load(std::memory_order_relaxed) & kPinned) == 0) {
      state.resident.forget(block);
      continue;
    }
    wait_until_may_write(block);
    wait_until_at_rest(block);  // meanwhile others were served
    unpin(block);
    if (!is_apart(block)) {  // its neighbours are in use: it stays as memory that is zero
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
  }
}

}  // namespace headroom::pager
