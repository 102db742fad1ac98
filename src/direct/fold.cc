// Folding into a rank's part of a window; see window.h.
//
// Elements are folded under a spin lock of the part's, so all that is touched under it is there: the part is held, and operands
// are held, in a bounce, or on the stack.
#include <algorithm>
#include <cstring>

#include "direct/copy.h"
#include "direct/endpoint.h"
#include "direct/held_pieces.h"
#include "direct/peer_hold.h"
#include "direct/window.h"
#include "pager/pager.h"

namespace headroom::direct {
namespace {

constexpr uint64_t kChunkBytes = 2048;       // of elements that are folded at a time, on the stack
constexpr uint64_t kShortBytes = 64;         // folded at once, if there are no gaps
constexpr uint64_t kLockedBytes = 64 << 10;  // folded under one lock

/// Holds `folding` of a part. Its holder touches nothing that could have to be waited for.
class FoldingLock {
 public:
  FoldingLock(Endpoint& endpoint, const WindowPart& part) : word_(endpoint.memory().at<WindowControl>(part.control)->folding) {
    constexpr uint32_t kSpins = 1000;
    const auto mine = static_cast<uint32_t>(pager::session().index) + 1;
    uint32_t holder = 0;
    for (uint32_t round = 0; !word_.compare_exchange_weak(holder, mine, std::memory_order_acquire); ++round) {
      if (round < kSpins) {
        relax();
      } else {
        (void)base::system_call(SYS_sched_yield);
        look_after(endpoint, holder);
      }
      holder = 0;
    }
  }
  ~FoldingLock() { word_.store(0, std::memory_order_release); }
  FoldingLock(const FoldingLock&) = delete;
  FoldingLock& operator=(const FoldingLock&) = delete;

 private:
  void look_after(Endpoint& endpoint, uint32_t holder) {
    const bool died = holder != 0 && node::state_of(pager::session().ledger->members[holder - 1]) == node::MemberState::kDied;
    if (died && word_.load(std::memory_order_acquire) == holder) {
      endpoint.report_lost(static_cast<int>(holder) - 1);
    }
  }

  std::atomic<uint32_t>& word_;
};

/// A few elements without gaps. This process's side is touched before and after.
void fold_short(Endpoint& endpoint, const WindowPart& part, const Content& there, const Content* from, const Content* before,
                const Fold& how) {
  alignas(64) char present[kShortBytes];
  alignas(64) char operand[kShortBytes];
  if (from != nullptr) {
    copy_short(operand, from->address, there.bytes);
  }
  const auto at = static_cast<uint64_t>(there.address - address_in_part(part, 0));
  const PeerRange range = {part.member, part.offset + at, there.bytes, how.what != Fold::What::kNothing};
  if (!take_peer_hold(pager::session(), range, 0)) {
    endpoint.report_lost(part.member);
  }
  {
    const FoldingLock lock(endpoint, part);
    if (before != nullptr) {
      copy_short(present, there.address, there.bytes);
    }
    if (how.what == Fold::What::kReplace) {
      copy_short(there.address, operand, there.bytes);
    } else if (how.what == Fold::What::kCombine) {
      how.combine(how, operand, there.address, there.bytes / how.packed_bytes);
    }
  }
  drop_peer_hold(pager::session(), range);
  if (before != nullptr) {
    copy_short(before->address, present, there.bytes);
  }
}

/// Folds content without gaps straight from where it is into where it is wanted.
void fold_in_place(Endpoint& endpoint, const WindowPart& part, char* there, const char* from, uint64_t bytes, const Fold& how) {
  for (uint64_t at = 0; at < bytes; at += kLockedBytes) {
    const uint64_t step = std::min<uint64_t>(bytes - at, kLockedBytes);
    const FoldingLock lock(endpoint, part);
    how.combine(how, from + at, there + at, step / how.packed_bytes);
  }
}

/// Folds a chunk at a time by way of the stack.
void fold_by_chunks(Endpoint& endpoint, const WindowPart& part, Walk& there, Walk* from, Walk* before, uint64_t bytes,
                    const Fold& how) {
  alignas(64) char present[kChunkBytes];
  alignas(64) char operand[kChunkBytes];
  alignas(64) char folded[kChunkBytes];
  const auto extent = static_cast<uint64_t>(how.extent);
  const uint64_t most = kChunkBytes / extent * how.packed_bytes;
  while (bytes > 0) {
    const uint64_t step = std::min(bytes, most);
    const uint64_t elements = step / how.packed_bytes;
    if (how.what != Fold::What::kNothing) {
      Walk read({operand, step, how.layout});
      copy(read, *from, step);
    }
    {
      const FoldingLock lock(endpoint, part);
      Walk back = there;
      Walk gathered({present, step, how.layout});
      copy(gathered, there, step);
      if (how.what == Fold::What::kCombine) {
        memcpy(folded, present, elements * extent);
        how.combine(how, operand, folded, elements);
      }
      if (how.what != Fold::What::kNothing) {
        Walk result({how.what == Fold::What::kCombine ? folded : operand, step, how.layout});
        copy(back, result, step);
      }
    }
    if (before != nullptr) {
      Walk fetched({present, step, how.layout});
      copy(*before, fetched, step);
    }
    bytes -= step;
  }
}

/// Folds a part's content that is held; this process's side is there, or a bounce.
void fold_held(Endpoint& endpoint, const WindowPart& part, Walk& there, Walk* from, Walk* before, uint64_t bytes,
               const Fold& how) {
  if (before == nullptr && how.layout == nullptr && how.what == Fold::What::kCombine && there.piece_bytes() >= bytes &&
      from->piece_bytes() >= bytes) {
    fold_in_place(endpoint, part, there.piece(), from->piece(), bytes, how);
    there.pass(bytes);
    from->pass(bytes);
    return;
  }
  fold_by_chunks(endpoint, part, there, from, before, bytes, how);
}

class Folding final : public PieceAction {
 public:
  Folding(Endpoint& endpoint, const WindowPart& part, const Content& there, const Content* from, const Content* before,
          const Fold& how)
      : endpoint_(endpoint),
        part_(part),
        there_(there),
        from_(from != nullptr ? *from : Content{nullptr, 0, nullptr}),
        before_(before != nullptr ? *before : Content{nullptr, 0, nullptr}),
        how_(how),
        fetches_(before != nullptr) {}

  void straight(uint64_t bytes) override {
    fold_held(endpoint_, part_, there_, &from_, fetches_ ? &before_ : nullptr, bytes, how_);
  }
  // Operands lie in the first half of the bounce, the previous content in the second.
  void before_hold(char* bounce, uint64_t bytes) override {
    if (how_.what != Fold::What::kNothing) {
      Walk into({bounce, bytes, nullptr});
      copy(into, from_, bytes);
    }
  }
  void held(char* bounce, uint64_t bytes) override {
    Walk operand({bounce, bytes, nullptr});
    Walk fetched({bounce + kBounceBytes / 2, bytes, nullptr});
    fold_held(endpoint_, part_, there_, &operand, fetches_ ? &fetched : nullptr, bytes, how_);
  }
  void after_hold(char* bounce, uint64_t bytes) override {
    if (fetches_) {
      Walk fetched({bounce + kBounceBytes / 2, bytes, nullptr});
      copy(before_, fetched, bytes);
    }
  }

 private:
  Endpoint& endpoint_;
  const WindowPart& part_;
  Walk there_;
  Walk from_;
  Walk before_;
  const Fold& how_;
  bool fetches_;
};

}  // namespace

void fold(Endpoint& endpoint, const WindowPart& part, const Content& there, const Content* from, const Content* before,
          const Fold& how) {
  const OwnSide own[2] = {{how.what != Fold::What::kNothing ? from : nullptr, false}, {before, true}};
  const bool is_short = there.bytes <= kShortBytes && there.layout == nullptr && how.layout == nullptr &&
                        (from == nullptr || from->layout == nullptr) && (before == nullptr || before->layout == nullptr);
  if (is_short && there.bytes > 0) {
    fold_short(endpoint, part, there, from, before, how);
  } else {
    Folding folding(endpoint, part, there, from, before, how);
    for_each_held_piece(endpoint, part, there, how.packed_bytes, how.what != Fold::What::kNothing, own, folding);
  }
}

}  // namespace headroom::direct
