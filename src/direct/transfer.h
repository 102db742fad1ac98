// A transfer: how the content of a message that does not fit a record reaches the receiver.
//
// It lies in the sender's area of message memory. Who does what is decided by one word:
//
//            ┌────────────── the receiver copies from the sender's memory ──────────────┐
//   OFFERED ─┤                                                                          ├─► DONE
//      │     └─► COPYING_ASIDE ──► ASIDE ── the receiver copies from message memory ────┘
//      │            the sender would not wait: it copies the content aside and goes on
//      └─► CANCELLED ──► DONE    a synchronous send was taken back; the receiver passes over it
//
//   STREAMING ──► DONE    what may neither be held nor copied aside in whole goes through a ring, whenever both are in MPI
//
// While it is OFFERED or TAKEN the sender's memory is held (pager::hold_for_peer). Both sides may copy: pieces are claimed with
// a counter, and whoever copies the last one ends it. From DONE on the sender takes the transfer back.
#pragma once

#include <atomic>
#include <cstdint>

#include "direct/layout.h"

namespace headroom::direct {

enum class TransferState : uint32_t {
  kNone,
  kOffered,
  kTaken,
  kCopyingAside,
  kAside,
  kTakenAside,
  kStreaming,
  kCancelled,
  kDone
};

/// What both sides copy together is cut into these.
inline constexpr uint64_t kPieceBytes = 128 << 10;
/// From here on both sides copy.
inline constexpr uint64_t kSharedFrom = 2 * kPieceBytes;

struct alignas(64) Transfer {
  std::atomic<TransferState> state;
  uint32_t reserved;  // the sender's: the copy aside counts in the ledger
  uint64_t bytes;
  char* address;         // of the content, in the sender's partition
  uint64_t layout;       // offset of its layout in message memory, or 0
  uint64_t aside;        // offset of the copy in message memory
  uint64_t aside_bytes;  // of the piece that it lies in; of the ring
  Transfer* next;        // the sender's: among those that it has done with

  // Written by the receiver, if both are to copy.
  alignas(64) char* target;  // in the receiver's partition
  uint64_t target_layout;
  uint64_t copied_bytes;  // of the content that fits the receive
  uint64_t pieces;
  alignas(64) std::atomic<uint64_t> next_piece;
  std::atomic<uint64_t> done_pieces;
  std::atomic<uint32_t> shared;    // the receiver's: the fields above say how both copy
  std::atomic<uint64_t> written;   // into the ring, by the sender
  std::atomic<uint64_t> consumed;  // from the ring, by the receiver
};
static_assert(sizeof(Transfer) == 192);

/// Transfers that the sender has done with and the receiver has not, first in, first out.
class LeftTransfers {
 public:
  [[nodiscard]] bool is_empty() const { return first_ == nullptr; }
  void push(Transfer* transfer) {
    transfer->next = nullptr;
    (last_ != nullptr ? last_->next : first_) = transfer;
    last_ = transfer;
  }
  Transfer* pop() {
    Transfer* transfer = first_;
    first_ = transfer->next;
    last_ = first_ != nullptr ? last_ : nullptr;
    return transfer;
  }

 private:
  Transfer* first_ = nullptr;
  Transfer* last_ = nullptr;
};

/// What the record of such a message carries.
struct TransferNote {
  uint64_t transfer;  // offset in message memory
  uint64_t bytes;
  const char* address;  // where the content may be, so that its first lines are on their way while the transfer is claimed
};

/// Copies pieces until none is left to claim; true to whoever ends last.
bool copy_pieces(Transfer& transfer, const Content& from, const Content& to);

}  // namespace headroom::direct
