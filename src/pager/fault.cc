// Serving faults: first touches, first writes, and blocks that are on storage.
//
// serve() makes one block accessible if that is possible at once. If not, the access waits (waiting_accesses.h), and
// serving.cc tries again. The block's word alone decides what a fault means: a stray access may have put a zero page under a
// hole, so that the kernel calls the next fault "minor".
#include "pager/fault.h"

#include <string.h>
#include <time.h>

#include <algorithm>

#include "arena/whole_blocks.h"
#include "base/log.h"
#include "pager/block_transitions.h"
#include "pager/block_words.h"
#include "pager/divided_blocks.h"
#include "pager/fatal_errors.h"
#include "pager/fork_copies.h"
#include "pager/hollow_blocks.h"
#include "pager/page_table.h"
#include "pager/present_pages.h"
#include "pager/requests.h"
#include "pager/room.h"
#include "pager/shares.h"
#include "pager/single_pages.h"
#include "pager/sparse_readers.h"
#include "pager/state.h"
#include "pager/streams.h"
#include "pager/thread_core.h"
#include "pager/touched.h"
#include "pager/transfers.h"
#include "pager/turns.h"
#include "pager/untouched_pages.h"
#include "pager/waiting_accesses.h"
#include "trace/counters.h"
#include "trace/labels.h"

namespace headroom::pager {
namespace {

using namespace arena;
using trace::Counter;

constexpr uint64_t kTouchAhead = 16;   // blocks
constexpr uint64_t kFreshLately = 16;  // first touches that faulted

/// Room for one block that a thread waits for.
bool take_room_for_one() {
  if (!older_ones_lack_room()) {
    if (reserve_blocks(1)) {
      return true;
    }
    note_short();  // a process that a fork has armed may be the first to find out
    make_room(kBlockBytes);
    if (reserve_blocks(1)) {
      return true;
    }
  }
  ++state.lacking_blocks;
  return false;
}

/// Gives a fresh block, whose room is reserved, memory and access.
void make_fresh(uint64_t block, bool write) {
  if (make_whole(*state.partition, block, {block, 1}) != base::Status::kOk) {
    die_without_memory();
  }
  state.resident.loaded(block);
  // Mapped first, said afterwards: a holder that sees MAPPED hands the memory to the kernel at once.
  state.engine->map(view_of_block(*state.partition, block), write);
  change_word(word_of(block), kStateMask | kDirty | kHasCopy | kWritable,
              kResident | kMapped | (write ? kDirty | kWritable : 0));
  count_touched();
}

bool may_touch_ahead(uint64_t block) {
  return block < state.partition->limit / kBlockBytes && state.may_touch_ahead[block].load(std::memory_order_relaxed) &&
         state_of(word_of(block).load(std::memory_order_acquire)) == kFresh;
}

/// The run that an access to fresh `block` continues, or a new one in place of the one that was continued longest ago.
FreshRun& fresh_run_at(uint64_t block) {
  FreshRun* oldest = &state.fresh_runs[0];
  for (FreshRun& run : state.fresh_runs) {
    if (run.used_at != 0 && run.next == block) {
      run.window = run.window == 0 ? 1 : run.window * 2;
      run.used_at = ++state.fresh_clock;
      return run;
    }
    oldest = run.used_at < oldest->used_at ? &run : oldest;
  }
  *oldest = {block + 1, 0, ++state.fresh_clock};
  return *oldest;
}

/// How many blocks one run may get ahead, so that none leaves before its use.
uint64_t most_touched_ahead() {
  uint64_t active = 0;
  for (const FreshRun& run : state.fresh_runs) {
    active += run.window > 0 && run.used_at + kFreshLately > state.fresh_clock ? 1 : 0;
  }
  const uint64_t most = state.resident.room_ahead(share_of_memory() / kBlockBytes) / 2 / (active > 0 ? active : 1);
  return std::min(most, kTouchAhead);
}

/// A thread that has touched several blocks in order gets the next ones, too, the more the longer it goes on. (Memory behind
/// the end of an allocation is zero, and leaves without being written.) Room for the blocks that it will touch next is made
/// meanwhile.
void touch_ahead(uint64_t block, bool write) {
  FreshRun& run = fresh_run_at(block);
  const uint64_t most = most_touched_ahead();
  run.window = std::min(run.window, most);
  uint64_t next = block + 1;
  const bool waited = state.waits_for_others;
  const uint64_t transfer = std::min(most, kTransferBlocks);
  const uint64_t soon = std::max(run.window, transfer);
  if (state.resident.count() > 4 * soon) {  // else it might be at this block's cost, which the thread has not used yet
    make_room(static_cast<int64_t>(2 * soon * kBlockBytes), Urgency::kNobodyWaits);
  }
  for (; next <= block + run.window && may_touch_ahead(next) && (!write || give_children_copies(next)) && reserve_blocks(1);
       ++next) {
    state.resident.expect(next);
    make_fresh(next, write);
    trace::count(Counter::kBlocksTouchedAhead);
  }
  run.next = next;
  state.waits_for_others = waited && state.waits_for_others;  // nobody waits for these
}

bool serve_fresh(uint64_t block, bool write, uint32_t page) {
  if (write && !give_children_copies(block)) {
    return false;  // it was dropped as zero since a fork
  }
  if (page != kWholeBlock && new_blocks_are_hollow() && begin_without_pages(block)) {
    trace::count(Counter::kFaultsFresh);
    return serve_page(block, page, write);
  }
  if (!take_room_for_one()) {
    return false;
  }
  make_fresh(block, write);
  trace::count(Counter::kFaultsFresh);
  touch_ahead(block, write);
  return true;
}

/// Whether the page has been mapped as the access needs it since it faulted. The block's word does not say: the kernel may have
/// taken the page away by itself. Its page table does (proc(5), pagemap).
bool is_mapped_meanwhile(uint64_t block, uint32_t page, bool write, uint64_t word) {
  const uint64_t wanted = kMapped | (write ? kWritable : 0);
  uint64_t entry = 0;
  return (word & wanted) == wanted && page != kWholeBlock &&
         read_page_table(view_of_block(*state.partition, block).address + page * kPageBytes, entry) &&
         (entry & kPagePresent) != 0 && (!write || (entry & kPageWriteProtected) == 0);
}

bool serve_resident(uint64_t block, bool write, uint32_t page, uint64_t word) {
  const View view = view_of_block(*state.partition, block);
  if (is_mapped_meanwhile(block, page, write, word)) {
    state.engine->wake(view);
    return true;
  }
  if (write && !give_children_copies(block)) {
    return false;
  }
  if (write && (word & kMapped) != 0 && (word & kWritable) == 0) {
    trace::count(Counter::kFaultsFirstWrite);
    if (state.engine->kind() != base::EngineChoice::kSigsegv && take_access(block)) {
      state.engine->hide(view);
      state.engine->map(view, true);
    } else {
      state.engine->unprotect(view);
    }
    change_word(word_of(block), kMarker | kUndefined, kMapped | kDirty | kWritable);
    return true;
  }
  if (state.resident.is_hidden(block)) {
    state.resident.used(block);
    trace::count(Counter::kFaultsProbation);
    if (continues_stream(block, page)) {
      extend_stream(block);
    } else if (page != kWholeBlock && divide_if_worth(block)) {
      return serve_page(block, page, write);
    }
  }
  const bool had_pages = is_probed(block);
  if ((word & (kMarker | kMapped)) == kMarker && probe_page(block, page, write)) {
    // The block's word does not say MAPPED: all other code treats the block as if nothing of it were mapped, but for the bits
    // that keep a write from being lost.
    state.engine->map({view.address + page * kPageBytes, kPageBytes}, write);
    if (write) {
      change_word(word_of(block), kUndefined, kDirty | kWritable);
    }
    extend_stream(block);
    return true;
  }
  // A dirty block may as well be mapped writable: there is nothing to learn from its next write. A block that a probe has made
  // writable stays so.
  const bool was_writable = (word & kWritable) != 0;
  const bool writable =
      write || was_writable || ((word & kDirty) != 0 && state_of(word) == kResident && is_given_to_all(block));
  if ((word & kMapped) == 0 && (had_pages || was_writable)) {
    state.engine->hide(view);  // map() would lift the protection of all of it, and each page fault once more
  }
  state.engine->map(view, writable);
  change_word(word_of(block), kMarker | (writable ? kUndefined : 0), kMapped | (writable ? kDirty | kWritable : 0));
  if ((word & kMarker) != 0) {
    extend_stream(block);
  }
  return true;
}

bool is_zero_on_storage(uint64_t block, uint32_t page) {
  return page != kWholeBlock && are_zero_on_storage(block, bit_of(page));
}

/// Whoever reads a block in which the program jumps about has those behind it read, too; others may be sequential readers.
void read_ahead_as_planned(uint64_t block, uint64_t ahead) {
  if (ahead == 0) {
    extend_stream(block);
    return;
  }
  note_better_whole(block + 1, ahead);
  if (state_of(word_of(block + 1).load(std::memory_order_relaxed)) == kStored) {
    read_announced(block + 1, ahead);
  }
}

/// Processor time of this process's threads but the pager's, which runs this.
uint64_t program_ns() {
  const uint64_t own = base::nanoseconds_of(CLOCK_THREAD_CPUTIME_ID);
  return base::nanoseconds_of(CLOCK_PROCESS_CPUTIME_ID) - own;
}

bool serve_stored(uint64_t block, uint32_t page) {
  const StoredBlock stored = {is_mostly_untouched(block), is_zero_on_storage(block, page), is_expected_thin(block)};
  const bool in_stream = !stored.is_hollow && continues_stream(block, page);
  const Asked asked = {block, page, in_stream, state.engine->kind() != base::EngineChoice::kSigsegv};
  const Plan plan = plan_stored(asked, stored, state.random_access, memory_view());
  if (page != kWholeBlock && !in_stream) {
    state.random_access.note_asked(block, page);
  }
  if (plan.too_much) {
    state.random_access.note_too_much();
  }
  if (!plan.whole) {
    return serve_page(block, page, false);
  }
  if (plan.jumps_about) {
    note_better_whole(block, 1);
  }
  if (can_transfer() && take_room_for_one()) {
    state.resident.expect(block, false);
    start_read(block, 1);
    read_ahead_as_planned(block, plan.blocks_ahead);
  }
  return false;
}

}  // namespace

bool serve(uint64_t block, bool write, uint32_t page) {
  const uint64_t word = word_of(block).load(std::memory_order_acquire);
  switch (state_of(word)) {
    case kFresh:
      return serve_fresh(block, write, page);
    case kResident:
    case kWriting:
      return serve_resident(block, write, page, word);
    case kStored:
      return serve_stored(block, page);
    case kSinglePages:
      return join_if_worth(block, page) ? serve_resident(block, write, page, word_of(block).load(std::memory_order_acquire))
                                        : serve_page(block, page, write);
    default:
      return false;
  }
}

void take_fault(uint64_t block, uint32_t page, bool write, int32_t thread, Request* request) {
  if (!state.armed && request != nullptr) {  // nothing is hidden yet: the program took the access away itself
    finish(*request, base::Status::kUnavailable);
    return;
  }
  const uint64_t word = word_of(block).load(std::memory_order_relaxed);
  const uint64_t here = kPinned | kMapped | kWritable;
  if (request != nullptr && state.engine->kind() == base::EngineChoice::kSigsegv && (word & here) == here) {
    finish(*request);  // asked before memory was watched: the access is repeated, and the handler then decides whose it is
    return;
  }
  trace::count(Counter::kFaults);
  base::log_trace(base::Part::kPager, "fault in block %llu, page %d; the block is %s", static_cast<unsigned long long>(block),
                  static_cast<int>(page), arena::name_of(state_of(word)));
  note_entry(block, page);
  note_visited_block(block);
  bool in_order = false;
  const bool from_storage =
      state_of(word) == kStored || state_of(word) == kReading ||
      (state_of(word) == kSinglePages && !is_present_page(block, page) && !is_zero_on_storage(block, page));
  if (from_storage) {
    const bool goes_on = continues_stream(block, page);
    in_order = goes_on;
    if (goes_on && state_of(word) == kReading) {
      extend_stream(block);  // so that the disk is busy while the content that it has read is put in its place
    }
    trace::count(Counter::kFaultsStorage);
    trace::count_for_label(block, 1, 0);
  }
  const bool served = !(from_storage && must_wait_for_turn(thread, state_of(word) != kReading)) && serve(block, write, page);
  if (from_storage && state_of(word_of(block).load(std::memory_order_relaxed)) == kSinglePages) {
    note_page_reader(thread);
  }
  if (from_storage) {
    state.random_access.note_storage_fault(in_order, program_ns(), memory_view());  // takes time: the disk is at work meanwhile
  }
  if (served) {
    if (request != nullptr) {
      finish(*request);
    }
    return;
  }
  if (!state.waiting.add({.request = request,
                          .block = block,
                          .count = 1,
                          .started_ns = base::monotonic_ns(),
                          .page = page,
                          .thread = thread,
                          .write = write,
                          .from_storage = from_storage,
                          .is_fault = true})) {
    // More wait than we keep account of: let this one try again.
    if (request != nullptr) {
      finish(*request);
    } else {
      state.engine->wake(view_of_block(*state.partition, block));
    }
  }
}

}  // namespace headroom::pager
