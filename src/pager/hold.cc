// Holds: keeping a range resident and accessible for one transfer; see pager.h.
//
// A hold is added to the block's word first and the word looked at afterwards; the pager changes RESIDENT to WRITING or
// STORED only by a compare-and-swap that finds no hold. So either the pager sees the hold, or the holder sees that the block
// is gone and asks for it.
#include "base/system_calls.h"
#include "pager/requests.h"
#include "pager/state.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using namespace arena;

std::atomic<uint64_t> pinned_bytes{0};

struct BlockRange {
  uint64_t first;
  uint64_t count;
};

/// The blocks of the part of [address, address + bytes) that lies in one view; `used` is how many bytes that part has.
BlockRange blocks_of(uintptr_t address, uint64_t bytes, uint64_t& used) {
  uint64_t offset = 0;
  if (!find_offset(partition(), address, offset)) {
    used = kPageBytes - address % kPageBytes;
    used = used < bytes ? used : bytes;
    return {0, 0};
  }
  uint64_t run = (offset + bytes - 1) / kBlockBytes - offset / kBlockBytes + 1;
  const View view = view_of_run(partition(), offset / kBlockBytes, run);
  const uint64_t inside = view.address + view.bytes - address;
  used = inside < bytes ? inside : bytes;
  return {offset / kBlockBytes, (offset + used - 1) / kBlockBytes - offset / kBlockBytes + 1};
}

void bring_blocks(BlockRange range, bool write) {
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
}

/// Adds the holds and sees to it that the blocks are there. `address` and `bytes` are what of them the caller means.
void hold_blocks(BlockRange range, bool write, uintptr_t address, uint64_t bytes) {
  const uint64_t wanted = kMapped | (write ? kWritable : 0);
  bool all_there = true;
  for (uint64_t block = range.first; block < range.first + range.count; ++block) {
    const uint64_t amount = kHold + (write ? kWriteHold : 0);
    const uint64_t word = word_of(block).fetch_add(amount, std::memory_order_seq_cst);
    all_there = all_there && state_of(word) == kResident && (word & wanted) == wanted;
  }
  if (!all_there && !populate_while_unarmed(address, bytes)) {
    bring_blocks(range, write);
  }
}

/// Calls `action(range, address, bytes)` for each part of [address, address + bytes) that lies in evictable memory.
template <typename Action>
void for_each_range(const void* address, uint64_t bytes, Action action) {
  auto at = reinterpret_cast<uintptr_t>(address);
  const uintptr_t end = at + bytes;
  while (at < end) {
    uint64_t used = 0;
    const BlockRange range = blocks_of(at, end - at, used);
    if (range.count > 0) {
      action(range, at, used);
    }
    at += used;
  }
}

}  // namespace

uint64_t largest_hold() {
  const node::Ledger& ledger = *session().ledger;
  const uint32_t alive = ledger.alive.load(std::memory_order_relaxed);
  const uint64_t share = static_cast<uint64_t>(ledger.budget) / (4 * (alive > 0 ? alive : 1));
  const uint64_t most = uint64_t{16} << 20;
  const uint64_t bytes = share < most ? share : most;
  return bytes > kBlockBytes ? bytes / kBlockBytes * kBlockBytes : kBlockBytes;
}

void hold(const void* address, uint64_t bytes, bool write) {
  trace::count(trace::Counter::kHolds);
  for_each_range(address, bytes, [=](BlockRange range, uintptr_t at, uint64_t used) { hold_blocks(range, write, at, used); });
}

bool try_pin(const void* address, uint64_t bytes) {
  const node::Ledger& ledger = *session().ledger;
  const uint64_t alive = ledger.alive.load(std::memory_order_relaxed);
  const uint64_t half_share = static_cast<uint64_t>(ledger.budget) / (2 * (alive > 0 ? alive : 1));
  uint64_t fresh = 0;
  for_each_range(address, bytes, [&](BlockRange range, uintptr_t, uint64_t) {
    for (uint64_t block = range.first; block < range.first + range.count; ++block) {
      fresh += (word_of(block).load(std::memory_order_relaxed) & kPinned) == 0 ? kBlockBytes : 0;
    }
  });
  if (fresh > 0 && pinned_bytes.load(std::memory_order_relaxed) + fresh > half_share) {
    return false;
  }
  pin(address, bytes);
  return true;
}

bool is_pinned(const void* address) {
  uint64_t offset = 0;
  return find_offset(partition(), reinterpret_cast<uintptr_t>(address), offset) &&
         (word_of(block_of(offset)).load(std::memory_order_acquire) & kPinned) != 0;
}

void unpin(uint64_t block) {
  if ((word_of(block).load(std::memory_order_relaxed) & kPinned) != 0) {
    word_of(block).fetch_sub(kPinned + kHold + kWriteHold, std::memory_order_acq_rel);
    pinned_bytes.fetch_sub(kBlockBytes, std::memory_order_relaxed);
  }
}

void pin(const void* address, uint64_t bytes) {
  for_each_range(address, bytes, [](BlockRange range, uintptr_t, uint64_t) {
    for (uint64_t block = range.first; block < range.first + range.count; ++block) {
      if ((word_of(block).fetch_or(kPinned, std::memory_order_acq_rel) & kPinned) == 0) {
        pinned_bytes.fetch_add(kBlockBytes, std::memory_order_relaxed);
        const View view = view_of_block(partition(), block);
        hold_blocks({block, 1}, true, view.address, view.bytes);
      }
    }
  });
}

void drop_hold(const void* address, uint64_t bytes, bool write) {
  for_each_range(address, bytes, [=](BlockRange range, uintptr_t, uint64_t) {
    for (uint64_t block = range.first; block < range.first + range.count; ++block) {
      // release: what was written under the hold happened before the pager may write the block out.
      word_of(block).fetch_sub(kHold + (write ? kWriteHold : 0), std::memory_order_release);
    }
  });
}

}  // namespace headroom::pager
