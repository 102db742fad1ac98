// Tests the invariants that pager.h states. On the pager thread, between two events: everything it says is then true at once,
// but for the sums of P1, which other threads of the program change in two steps: for these the program must rest.
#include "pager/invariants.h"

#include <string.h>

#include "base/log.h"
#include "pager/present_pages.h"
#include "pager/state.h"

namespace headroom::pager {
namespace {

using namespace arena;

bool broken(const char* invariant, uint64_t block, uint64_t word) {
  base::log_warning("invariant %s is broken: block %llu is %#llx", invariant, static_cast<unsigned long long>(block),
                    static_cast<unsigned long long>(word));
  return false;
}

bool is_zero(uint64_t block) {
  const auto* memory = reinterpret_cast<const char*>(state.partition->alias + block * kBlockBytes);
  return memory[0] == 0 && memcmp(memory, memory + 1, kBlockBytes - 1) == 0;
}

bool block_is_right(uint64_t block) {
  const uint64_t word = word_of(block).load(std::memory_order_acquire);
  if (state_of(word) == kResident && (word & (kDirty | kHasCopy | kUndefined)) == 0 && !is_zero(block)) {
    return broken("P3 (clean without a copy is zero or undefined)", block, word);
  }
  if (state_of(word) == kStored && (word & kHasCopy) == 0) {
    return broken("P3 (what is stored has a copy)", block, word);
  }
  if (state_of(word) == kSinglePages && (word & kHasCopy) == 0 && pages_of(block).present != kAllPages) {
    return broken("P3 (what of a block is not here has a copy)", block, word);
  }
  const bool is_here = state_of(word) == kResident || state_of(word) == kWriting;
  if ((word & kShared) != 0 && (!is_here || (word & kWritable) != 0)) {
    return broken("P5 (shared with children is here and cannot be written)", block, word);
  }
  if ((word & (kWritable | kDirty)) == kWritable) {
    return broken("P4 (writable is dirty)", block, word);
  }
  return true;
}

bool resident_blocks_are_listed() {
  uint64_t length = 0;
  for (uint32_t block = state.resident.first(); block != kNoBlock; block = state.resident.after(block)) {
    const uint64_t now = state_of(word_of(block).load(std::memory_order_acquire));
    if (now != kResident && now != kSinglePages) {
      return broken("(what is listed is resident)", block, word_of(block).load());
    }
    ++length;
  }
  return length == state.resident.count();
}

uint64_t committed_blocks() { return state.partition->committed.load(std::memory_order_relaxed) / kBlockBytes; }

/// What holds whatever other threads do meanwhile.
bool check_blocks() {
  for (uint64_t block = 0; block < committed_blocks(); ++block) {
    if (!block_is_right(block)) {
      return false;
    }
  }
  return resident_blocks_are_listed();
}

}  // namespace

bool check_invariants() {
  if (!state.armed) {
    return true;  // nothing is watched
  }
  if (!check_blocks()) {
    return false;
  }
  int64_t here = 0;
  for (uint64_t block = 0; block < committed_blocks(); ++block) {
    const uint64_t now = state_of(word_of(block).load(std::memory_order_acquire));
    here += now == kResident || now == kReading || now == kWriting ? static_cast<int64_t>(kBlockBytes) : 0;
    here += now == kSinglePages ? static_cast<int64_t>(bytes_of_pages(block)) : 0;
  }
  const int64_t reserved = state.session->self->memory.reserved_bytes.load(std::memory_order_acquire);
  const int64_t messages = state.session->self->memory.message_bytes.load(std::memory_order_acquire);
  if (here + state.other_bytes + messages != reserved || messages < 0) {
    base::log_warning(
        "invariant P1 is broken: %lld bytes are here, %lld outside the arena, and %lld in messages, but %lld are reserved",
        static_cast<long long>(here), static_cast<long long>(state.other_bytes), static_cast<long long>(messages),
        static_cast<long long>(reserved));
    return false;
  }
  return true;
}

void check_now_and_then() {
#ifndef NDEBUG
  constexpr uint64_t kRoundsBetween = 64;
  static uint64_t rounds = 0;
  if (state.armed && ++rounds % kRoundsBetween == 0 && !check_blocks()) {
    base::die("an invariant of the pager is broken, see the warning before");
  }
#endif
}

}  // namespace headroom::pager
