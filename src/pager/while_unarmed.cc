// See while_unarmed.h.
#include "pager/while_unarmed.h"

#include "base/kernel_abi.h"
#include "pager/pager.h"
#include "pager/state.h"
#include "pager/transition_lock.h"

namespace headroom::pager {

using detail::the_session;

namespace {

/// Whether this process has begun to arm, for a thread that has just added a hold by a seq_cst operation. If not, list_held()
/// (arming.cc) finds the hold: there the word `arms` is written before the blocks' words are read, with a fence between; here a
/// block's word is changed before `arms` is read, both seq_cst. One of the two sees the other
/// (tests/unit/arming_protocol_test.cc).
bool arms() { return the_session.self->pager.arms.load(std::memory_order_seq_cst) != 0; }

}  // namespace

bool is_armed_once_settled() {
  if (__builtin_expect(!arms(), 1)) {
    return false;  // arming that begins now finds the hold
  }
  const TransitionHolder until_it_has_armed;
  return is_armed();
}

bool populate_while_unarmed(uintptr_t address, uint64_t bytes) {
  if (!arms()) {
    if (engine_serves_kernel()) {
      return true;
    }
    // The process may arm while the kernel is at work on this range; no page of it may be missing then.
    const uintptr_t page = address & ~(arena::kPageBytes - 1);
    (void)base::system_call(SYS_madvise, page, address + bytes - page, MADV_POPULATE_WRITE);
    if (!arms()) {
      return true;
    }
  }
  const TransitionHolder until_it_has_armed;
  return false;
}

bool mark_kept(uint64_t block, uint64_t bit, uint64_t& before) {
  const TransitionHolder lock;
  before = word_of(block).load(std::memory_order_relaxed);
  do {
    if ((before & bit) != 0) {
      return false;
    }
  } while (!word_of(block).compare_exchange_weak(before, (before | bit) + arena::kHold + arena::kWriteHold));
  return true;
}

}  // namespace headroom::pager
