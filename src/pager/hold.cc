// Holds: keeping a range resident and accessible for one transfer; see pager.h.
//
// A hold is added to the block's word first and the word looked at afterwards; the pager changes RESIDENT to WRITING or
// STORED only by a compare-and-swap that finds no hold. So either the pager sees the hold, or the holder sees that the block
// is gone and asks for it.
#include "pager/hold.h"

#include <algorithm>

#include "base/system_calls.h"
#include "pager/block_ranges.h"
#include "pager/requests.h"
#include "pager/state.h"
#include "pager/while_unarmed.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using namespace arena;

constexpr int64_t kHoldPart = 6;                                // see largest_hold()
constexpr int64_t kLeastBesidePins = 8 * int64_t{kBlockBytes};  // an instruction may need four, and as many are on their way
constexpr int64_t kLeastToHoldOf = 12 * int64_t{kBlockBytes};   // below, memory that can be copied is not held

void bring_blocks(BlockRange range, bool write) {
  const uint64_t started = base::monotonic_ns();
  base::Status status = base::Status::kNoMemory;
  while (status != base::Status::kOk) {
    Request request = {};
    request.kind = RequestKind::kBring;
    request.block = range.first;
    request.count = range.count;
    request.write = write;
    perform(request);
    status = request.status;
  }
  trace::count(trace::Counter::kStorageWaitNs, base::monotonic_ns() - started);
}

bool is_there(uint64_t word, bool write) {
  const uint64_t wanted = kMapped | (write ? kWritable : 0);
  return state_of(word) == kResident && (word & (wanted | kShared)) == wanted;
}

/// After holds were added: sees to it that the blocks are there. `address` and `bytes` are the part of them that the caller
/// means.
void make_present(BlockRange range, bool write, bool all_there, uintptr_t address, uint64_t bytes) {
  if (!all_there && !populate_while_unarmed(address, bytes)) {
    bring_blocks(range, write);
  }
}

void hold_blocks(BlockRange range, bool write, uintptr_t address, uint64_t bytes) {
  bool all_there = true;
  for (uint64_t block = range.first; block < range.first + range.count; ++block) {
    const uint64_t amount = kHold + (write ? kWriteHold : 0);
    all_there = is_there(word_of(block).fetch_add(amount, std::memory_order_seq_cst), write) && all_there;
  }
  make_present(range, write, all_there, address, bytes);
}

/// Takes the hold that `bit` stands for away, if it is there.
void end_keeping(uint64_t block, uint64_t bit) {
  uint64_t seen = word_of(block).load(std::memory_order_relaxed);
  do {
    if ((seen & bit) == 0) {
      return;
    }
  } while (!word_of(block).compare_exchange_weak(seen, seen - bit - kHold - kWriteHold, std::memory_order_acq_rel));
  state.pinned_bytes.fetch_sub(kBlockBytes, std::memory_order_relaxed);
}

/// Adds to each block a write hold that `bit` stands for, once.
void keep(const void* address, uint64_t bytes, uint64_t bit) {
  for_each_range(address, bytes, [=](BlockRange range, uintptr_t, uint64_t) {
    for (uint64_t block = range.first; block < range.first + range.count; ++block) {
      uint64_t before = 0;
      if (!mark_kept(block, bit, before)) {
        continue;
      }
      state.pinned_bytes.fetch_add(kBlockBytes, std::memory_order_relaxed);
      const View view = view_of_block(partition(), block);
      make_present({block, 1}, true, is_there(before, true), view.address, view.bytes);
    }
  });
}

}  // namespace

uint64_t bytes_of_hold(const void* address, uint64_t bytes) {
  uint64_t used = 0;
  return bytes == 0 ? 0 : blocks_of(reinterpret_cast<uintptr_t>(address), bytes, used).count * kBlockBytes;
}

namespace {

/// The bytes that this rank may have in blocks that can leave.
int64_t evictable_share() {
  const node::Ledger& ledger = *session().ledger;
  const int64_t alive = ledger.alive.load(std::memory_order_relaxed);
  return ledger.budget / (alive > 0 ? alive : 1) - bytes_besides_blocks(*session().self) -
         static_cast<int64_t>(pinned_bytes_now());
}

}  // namespace

uint64_t largest_hold() {
  // Every rank may hold so much of its own for ranks that fetch it, so much for ranks that fill it, and one range of its own
  // and one of another's, each with a block more than it has whole: all of these together must leave room beside the pinned
  // blocks, or all ranks wait for each other.
  const int64_t share = evictable_share() / kHoldPart;
  constexpr int64_t kMost = 16 << 20;
  const int64_t bytes = std::min(share, kMost);
  return bytes > static_cast<int64_t>(kBlockBytes) ? static_cast<uint64_t>(bytes) / kBlockBytes * kBlockBytes : kBlockBytes;
}

uint64_t largest_optional_hold() { return evictable_share() < kLeastToHoldOf ? 0 : largest_hold(); }

void hold(const void* address, uint64_t bytes, bool write) {
  trace::count(trace::Counter::kHolds);
  for_each_range(address, bytes, [=](BlockRange range, uintptr_t at, uint64_t used) { hold_blocks(range, write, at, used); });
}

bool find_evictable(const void* address, uint64_t& offset) {
  return arena::find_offset(partition(), reinterpret_cast<uintptr_t>(address), offset);
}

bool hold_for_peer(const void* address, uint64_t bytes, bool write, uint64_t& offset) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const bool inside = bytes != 0 && find_offset(partition(), at, offset);
  const uint64_t committed = partition().committed.load(std::memory_order_acquire);
  if (!inside || bytes > committed || offset > committed - bytes) {
    return false;  // a datatype may reach from evictable memory to any other
  }
  uint64_t used = 0;
  const BlockRange range = blocks_of(at, bytes, used);
  if (used < bytes) {
    return false;
  }
  bool all_there = true;
  uint64_t absent = 0;
  for (uint64_t block = range.first; block < range.first + range.count; ++block) {
    const uint64_t before = word_of(block).fetch_add(kHold + (write ? kWriteHold : 0), std::memory_order_seq_cst);
    absent += state_of(before) == kStored || state_of(before) == kSinglePages ? 1 : 0;
    all_there = (write ? is_there(before, true) : state_of(before) == kResident && (before & kShared) == 0) && all_there;
  }
  // While memory is not watched nothing is taken away, and arming lists the held blocks (arming.cc); one that is under way may
  // have done so before this hold.
  if (!all_there && is_armed_once_settled()) {
    if (absent > 0) {
      trace::count(trace::Counter::kBlocksBroughtForMessages, absent);
    }
    bring_blocks(range, write);
  }
  return true;
}

namespace {

/// The bytes that may be pinned in all: half of the bytes that blocks can have, or fewer, to leave room for the holds that
/// cannot be done without. Memory outside the arena is measured once memory is short.
uint64_t pin_limit() {
  const node::Ledger& ledger = *session().ledger;
  const int64_t alive = ledger.alive.load(std::memory_order_relaxed);
  const int64_t share = ledger.budget / (alive > 0 ? alive : 1);
  const int64_t other = is_armed() ? bytes_besides_blocks(*session().self) : share / 2;
  const int64_t half = (share - other) / 2;
  const int64_t rest = share - other - kLeastBesidePins;
  const int64_t limit = std::min(half, rest);
  return limit > 0 ? static_cast<uint64_t>(limit) : 0;
}

bool try_keep(const void* address, uint64_t bytes, uint64_t bit) {
  uint64_t fresh = 0;
  for_each_range(address, bytes, [&](BlockRange range, uintptr_t, uint64_t) {
    for (uint64_t block = range.first; block < range.first + range.count; ++block) {
      fresh += (word_of(block).load(std::memory_order_relaxed) & bit) == 0 ? kBlockBytes : 0;
    }
  });
  if (fresh > 0 && pinned_bytes_now() + fresh > pin_limit()) {
    return false;
  }
  keep(address, bytes, bit);
  return true;
}

}  // namespace

bool try_pin(const void* address, uint64_t bytes) { return try_keep(address, bytes, kPinned); }
bool try_lock(const void* address, uint64_t bytes) { return try_keep(address, bytes, kLocked); }
void pin(const void* address, uint64_t bytes) { keep(address, bytes, kPinned); }

void unlock(const void* address, uint64_t bytes) {
  for_each_range(address, bytes, [](BlockRange range, uintptr_t, uint64_t) {
    for (uint64_t block = range.first; block < range.first + range.count; ++block) {
      end_keeping(block, kLocked);
    }
  });
}

void unlock_all() {
  for (uint64_t block = 0; block < partition().committed.load(std::memory_order_relaxed) / kBlockBytes; ++block) {
    end_keeping(block, kLocked);
  }
}

namespace {

base::FutexLock long_lock;
uint16_t* long_counts = nullptr;  // of long holds, by block

/// With the lock held: a count for each block that the process can have.
bool open_long_counts() {
  if (long_counts == nullptr) {
    long_counts = static_cast<uint16_t*>(base::reserve_memory(partition().limit / kBlockBytes * sizeof(uint16_t)));
  }
  return long_counts != nullptr;
}

template <typename Each>
void for_each_block(const void* address, uint64_t bytes, Each each) {
  for_each_range(address, bytes, [&](BlockRange range, uintptr_t, uint64_t) {
    for (uint64_t block = range.first; block < range.first + range.count; ++block) {
      each(block);
    }
  });
}

}  // namespace

bool try_long_hold(const void* address, uint64_t bytes) {
  const base::LockHolder lock(long_lock);
  if (!open_long_counts()) {
    return false;
  }
  uint64_t fresh = 0;
  for_each_block(address, bytes, [&](uint64_t block) { fresh += long_counts[block] == 0 ? kBlockBytes : 0; });
  if (fresh > 0 && pinned_bytes_now() + fresh > pin_limit()) {
    return false;
  }
  state.pinned_bytes.fetch_add(fresh, std::memory_order_relaxed);
  for_each_block(address, bytes, [](uint64_t block) { ++long_counts[block]; });
  hold(address, bytes, true);
  return true;
}

void drop_long_hold(const void* address, uint64_t bytes) {
  const base::LockHolder lock(long_lock);
  drop_hold(address, bytes, true);
  uint64_t over = 0;
  for_each_block(address, bytes, [&](uint64_t block) { over += --long_counts[block] == 0 ? kBlockBytes : 0; });
  state.pinned_bytes.fetch_sub(over, std::memory_order_relaxed);
}

uint64_t long_hold_room() {
  const uint64_t limit = pin_limit();
  const uint64_t now = pinned_bytes_now();
  return limit > now ? limit - now : 0;
}

bool is_pinned(const void* address) {
  uint64_t offset = 0;
  return find_offset(partition(), reinterpret_cast<uintptr_t>(address), offset) &&
         (word_of(block_of(offset)).load(std::memory_order_acquire) & kPinned) != 0;
}

void unpin(uint64_t block) {
  end_keeping(block, kPinned);
  end_keeping(block, kLocked);
}

bool try_hold(const void* address, uint64_t bytes, bool write) {
  uint64_t used = 0;
  const BlockRange range = blocks_of(reinterpret_cast<uintptr_t>(address), bytes, used);
  if (range.count == 0 || used < bytes) {
    return false;
  }
  bool all_there = true;
  for (uint64_t block = range.first; block < range.first + range.count; ++block) {
    const uint64_t amount = kHold + (write ? kWriteHold : 0);
    all_there = is_there(word_of(block).fetch_add(amount, std::memory_order_seq_cst), write) && all_there;
  }
  if (!all_there) {
    drop_hold(address, bytes, write);
  }
  return all_there;
}

void drop_hold(const void* address, uint64_t bytes, bool write) {
  for_each_range(address, bytes, [=](BlockRange range, uintptr_t, uint64_t) {
    for (uint64_t block = range.first; block < range.first + range.count; ++block) {
      // release: writes under the hold happened before the pager may write the block out.
      word_of(block).fetch_sub(kHold + (write ? kWriteHold : 0), std::memory_order_release);
    }
  });
}

}  // namespace headroom::pager
