// The spans that are held for receivers, so that content for many of them (a broadcast, an allgather) counts once. The amount
// that a rank may hold is limited while memory is short (pager::largest_optional_hold); content beyond it is copied through
// message memory, for each receiver again.
//
// Contents are the same if they lie at the same address and are as long; others count each for itself, even if they overlap,
// and so do the same ones where the table is full. Not thread-safe.
#pragma once

#include <cstdint>

#include "direct/layout.h"

namespace headroom::direct {

class HeldSpans {
 public:
  /// The bytes of the blocks that are held.
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

  /// Whether bytes() stays as it is if `span` is held once more.
  [[nodiscard]] bool has(const Span& span) { return find(span, kMostUses) != nullptr; }

  /// Whether nothing more may be held: a block's word counts 65535 holds, and all of these may be of one block.
  [[nodiscard]] bool is_full() const { return holds_ >= kMostHolds; }

  /// `block_bytes`: of the blocks that `span` lies in.
  void add(const Span& span, uint64_t block_bytes) {
    ++holds_;
    if (Entry* same = find(span, kMostUses)) {
      ++same->uses;
      return;
    }
    bytes_ += block_bytes;
    if (Entry* unused = find({nullptr, 0}, 1)) {
      *unused = {span, 1};
    }
  }

  /// Drops a span that was added before. (The sum is the same for the one in the table and for one that counted for itself.)
  void drop(const Span& span, uint64_t block_bytes) {
    --holds_;
    Entry* const same = find(span, kMostUses + 1);
    if (same != nullptr && --same->uses > 0) {
      return;
    }
    bytes_ -= block_bytes;
    if (same != nullptr) {
      *same = {};
    }
  }

 private:
  static constexpr int kEntries = 16;
  static constexpr uint32_t kMostUses = 1024;
  static constexpr uint32_t kMostHolds = 1 << 15;

  struct Entry {
    Span span;
    uint32_t uses;
  };

  Entry* find(const Span& span, uint32_t less_uses_than) {
    for (Entry& entry : entries_) {
      if (entry.span.begin == span.begin && entry.span.bytes == span.bytes && entry.uses < less_uses_than) {
        return &entry;
      }
    }
    return nullptr;
  }

  uint64_t bytes_ = 0;
  uint32_t holds_ = 0;
  Entry entries_[kEntries] = {};
};

}  // namespace headroom::direct
