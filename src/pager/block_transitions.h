// The transitions of a block's word, one for each step that the pager takes with the block; nullopt if it may not, since the
// block is held, was written, or is not in that state. They are pure functions of the word, so that a test can try the steps in
// every order in which threads may take them (tests/unit/block_protocol_test.cc).
#pragma once

#include <cstdint>
#include <optional>

#include "arena/arena.h"

namespace headroom::pager {

using NextWord = std::optional<uint64_t>;

namespace next {

/// Its content begins to be written out. Its view is to be write-protected next.
constexpr NextWord begin_writing(uint64_t word) {
  using namespace arena;
  if ((word & kHoldMask) != 0 || (word & kStateMask) != kResident || (word & kDirty) == 0) {
    return std::nullopt;
  }
  return (word & ~(kStateMask | kDirty | kWritable | kHasCopy)) | kWriting;
}

/// Storage has what was written out, unless the block was written meanwhile.
constexpr NextWord note_copy(uint64_t word) {
  using namespace arena;
  return (word & kDirty) != 0 ? NextWord() : word | kHasCopy;
}

/// Memory is taken away from a clean block that is in state `from`; `zero`: all of it is. Its view is to be concealed next, and
/// the memory given back.
constexpr NextWord drop_clean(uint64_t word, arena::BlockState from, bool zero) {
  using namespace arena;
  if ((word & kHoldMask) != 0 || (word & kDirty) != 0 || (word & kStateMask) != from) {
    return std::nullopt;
  }
  const uint64_t marks = word & (kOutOnce | kOutTwice);
  if ((word & kHasCopy) == 0 || zero) {
    return kFresh | marks;
  }
  return kStored | kHasCopy | marks | (marks != 0 ? kOutTwice : kOutOnce);
}

/// It is no longer being written out, and stays.
constexpr NextWord end_writing(uint64_t word) {
  using namespace arena;
  return (word & ~kStateMask) | kResident;
}

/// The same when nothing of it was written out: it is as dirty as before.
constexpr NextWord undo_writing(uint64_t word, bool writable) {
  using namespace arena;
  return (word & ~kStateMask) | kResident | kDirty | kMapped | (writable ? kWritable : 0);
}

/// The same when it could not be written out: as dirty as before, and mapped as it is.
constexpr NextWord fail_writing(uint64_t word) {
  using namespace arena;
  return (word & ~kStateMask) | kResident | kDirty;
}

/// Forked children are to map its memory, until a thread writes to it or holds it. (It goes with the block's memory.)
constexpr NextWord begin_sharing(uint64_t word) {
  using namespace arena;
  const bool may_change = (word & kHoldMask) != 0 || (word & kWritable) != 0;
  return may_change || (word & kStateMask) != kResident ? NextWord() : word | kShared;
}

/// The program's access is taken away; its view is to be hidden next.
constexpr NextWord take_access(uint64_t word) {
  using namespace arena;
  return (word & kHoldMask) != 0 || (word & kMapped) == 0 ? NextWord() : word & ~(kMapped | kWritable);
}

/// Its pages are judged one by one from now on (divided_blocks.h). Only a block that is hidden, and of which it is known that
/// the program has not said what is to become of it.
constexpr NextWord divide(uint64_t word) {
  using namespace arena;
  const uint64_t hindrances = kHoldMask | kMapped | kWritable | kMarker | kShared | kUndefined;
  const bool has_content = (word & (kDirty | kHasCopy)) != 0;
  if ((word & hindrances) != 0 || (word & kStateMask) != kResident || !has_content) {
    return std::nullopt;
  }
  return (word & ~(kStateMask | kDirty)) | kSinglePages;
}

/// Its content will be overwritten. The content of a block in memory (if `resident_too`) need not be written out, and that of a
/// block on storage need not be read. The view of a block that was writable is to be write-protected before.
constexpr NextWord forget_content(uint64_t word, bool resident_too) {
  using namespace arena;
  if ((word & kHoldMask) != 0) {
    return std::nullopt;
  }
  if ((word & kStateMask) == kStored) {
    return kFresh | (word & (kOutOnce | kOutTwice));
  }
  if ((word & kStateMask) == kResident && resident_too) {
    return (word & ~(kDirty | kHasCopy | kWritable)) | kUndefined;
  }
  return std::nullopt;
}

/// Bits that are the pager's change, whatever the holds.
constexpr NextWord change_bits(uint64_t word, uint64_t clear, uint64_t set) { return (word & ~clear) | set; }

}  // namespace next

/// Makes the transition; false, and nothing done, if `next` says that it may not be. `before`: the word as it was then.
template <typename Next>
bool make_transition(arena::BlockWord& word, Next next, uint64_t& before) {
  before = word.load(std::memory_order_acquire);
  for (;;) {
    const NextWord after = next(before);
    if (!after) {
      return false;
    }
    // acq_rel: pairs with the holders' additions (hold.cc); a holder that sees RESIDENT and MAPPED sees the mapping.
    if (word.compare_exchange_weak(before, *after, std::memory_order_acq_rel)) {
      return true;
    }
  }
}

template <typename Next>
bool make_transition(arena::BlockWord& word, Next next) {
  uint64_t before = 0;
  return make_transition(word, next, before);
}

}  // namespace headroom::pager
