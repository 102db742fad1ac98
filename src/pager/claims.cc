// The work that the program's threads do on memory themselves as long as it is enough, and its end.
//
// While memory is enough, allocated memory counts against the budget, and memory that is given up is punched at once; nobody
// watches. A claim that does not fit makes the node short: every process arms (arming.cc), and from then on resident memory
// counts, and the pager's thread does all this. One lock keeps the two apart. A thread that holds memory takes it only when the
// process arms, or to pin, with signals blocked: signal handlers may do both.
#include "pager/claims.h"

#include "base/log.h"
#include "pager/arming.h"
#include "pager/first_touch.h"
#include "pager/hold.h"
#include "pager/other_memory.h"
#include "pager/pager.h"
#include "pager/requests.h"
#include "pager/room.h"
#include "pager/state.h"
#include "pager/transition_lock.h"
#include "trace/counters.h"

namespace headroom::pager {

namespace {

using base::Status;
using detail::the_session;

int64_t claimed_bytes = 0;  // reserved for allocations while memory is enough; under the lock

void make_short() {
  note_short();
  node::Ledger& ledger = *the_session.ledger;
  const int64_t members = ledger.alive.load(std::memory_order_relaxed);
  if (ledger.budget < members * kFloorBytes) {
    base::die(
        "--memory %lld MiB is too small for %lld processes on this node: each needs %lld MiB, and as much for what cannot "
        "move; "
        "raise it to %lld MiB or more",
        static_cast<long long>(ledger.budget >> 20), static_cast<long long>(members), static_cast<long long>(kFloorBytes >> 20),
        static_cast<long long>(2 * members * kFloorBytes >> 20));
  }
}

}  // namespace

void become_armed() {
  if (!state.armed) {  // else the thread that holds the lock may be waiting for this one
    base::LockHolder lock(transition_lock);
    arm(claimed_bytes);
    state.armed_for_all.store(true, std::memory_order_release);
  }
}

void claim_blocks(uint64_t count) {
  if (count == 0) {
    return;  // an allocation in a block that has others
  }
  const auto bytes = static_cast<int64_t>(count * arena::kBlockBytes);
  {
    const TransitionHolder lock;
    if (is_armed()) {
      return;  // reserved when touched
    }
    note_touched();
    count_other_memory_roughly();
    if (the_session.ledger->short_memory.load(std::memory_order_acquire) == 0 &&
        node::reserve(*the_session.ledger, *the_session.self, bytes)) {
      claimed_bytes += bytes;
      return;
    }
  }
  make_short();
  Request request = {};
  request.kind = RequestKind::kArm;
  perform(request);
}

void discard_blocks(uint64_t block, uint64_t count) {
  if (count == 0) {
    return;
  }
  {
    const TransitionHolder lock;
    if (!is_armed()) {
      forget_first_touch(block * arena::kBlockBytes, count * arena::kBlockBytes, true);
      for (uint64_t each = block; each < block + count; ++each) {
        unpin(each);
      }
      note_touched();
      arena::punch(partition(), block, count);
      trace::count(trace::Counter::kBlocksDiscarded, count);
      return;
    }
  }
  Request request = {};
  request.kind = RequestKind::kDiscard;
  request.block = block;
  request.count = count;
  perform(request);
}

void let_touch_ahead(uint64_t block, uint64_t count, bool may) {
  for (uint64_t each = block; each < block + count; ++each) {
    state.may_touch_ahead[each].store(may, std::memory_order_relaxed);
  }
}

void unclaim_blocks(uint64_t count) {
  const TransitionHolder lock;
  if (!is_armed()) {
    const auto bytes = static_cast<int64_t>(count * arena::kBlockBytes);
    node::release(*the_session.ledger, *the_session.self, bytes);
    claimed_bytes -= bytes;
  }
}

Status grow(uint64_t bytes) {
  {
    const TransitionHolder lock;
    if (bytes <= partition().committed.load(std::memory_order_relaxed)) {
      return Status::kOk;
    }
    if (!is_armed()) {
      return arena::commit(partition(), bytes, true);
    }
  }
  Request request = {};
  request.kind = RequestKind::kGrow;
  request.bytes = bytes;
  perform(request);
  return request.status;
}

Status add_static_region(uintptr_t address, uint64_t bytes, uint64_t offset,
                         bool (*copy)(uintptr_t address, uint64_t bytes, uint64_t offset)) {
  const TransitionHolder lock;
  // Held until they are watched: until then the pager does not see writes to them (arena/whole_blocks.h).
  const uint64_t first = arena::block_of(offset);
  const uint64_t last = arena::block_of(offset + bytes - 1);
  const auto hold_all = [=](bool hold) {
    for (uint64_t block = first; block <= last; ++block) {
      word_of(block).fetch_add(hold ? arena::kHold : uint64_t{0} - arena::kHold, std::memory_order_acq_rel);
    }
  };
  hold_all(true);
  Status status = copy(address, bytes, offset) ? Status::kOk : Status::kNoMemory;
  if (status == Status::kOk) {
    status = arena::add_static_region(partition(), address, bytes, offset);
  }
  if (status == Status::kOk && is_armed()) {
    Request request = {};
    request.kind = RequestKind::kAdopt;
    perform(request);
  }
  hold_all(false);
  return status;
}

}  // namespace headroom::pager
