// A transfer: how the content of a message that does not fit a record reaches the receiver.
//
// It lies in the message's record, in the line that the receiver looks at anyway. One word decides which side does what:
//
//            ┌────────────── the receiver copies from the sender's memory ──────────────┐
//   OFFERED ─┤                                                                          ├─► DONE
//      │     └─► COPYING_ASIDE ──► ASIDE ── the receiver copies from message memory ────┘
//      │            the sender would not wait: it copies the content aside and goes on
//      ├─► CANCELLED ──► DONE    a send was taken back (also from ASIDE and STREAMING); the receiver passes over it
//      ├─► ACKNOWLEDGED ──► DONE    the receiver's helper (away.cc) has matched it and copied it aside; the sender goes on
//      └─► MATCHED ──► TAKEN    a thread of the receiver's is to copy it (apart.cc); if none comes for it:
//             └─► COPYING_MATCHED ──► ASIDE, taken    the sender would not wait, as above
//
//   TAKEN ──► HELPED ──► DONE    the sender waits for its content to be copied, and offers to copy some of it (help_receiver())
//
//   STREAMING ─► STREAM_TAKEN ─► DONE    content that may neither be held nor copied aside in whole goes through a ring, while
//                                        both are in MPI; ─► COPYING_ASIDE if the receiver cannot take it (away.cc)
//
// While it is OFFERED or TAKEN the sender's memory is held (pager::hold_for_peer). Both sides may copy, long content from its
// beginning on, shorter if that takes long, since it is in neither's caches: pieces are claimed with a counter, and the
// receiver ends it when the last one is copied. From DONE on the sender gives the record back.
#pragma once

#include <atomic>
#include <cstdint>

#include "direct/attach.h"
#include "direct/channel.h"
#include "direct/layout.h"

namespace headroom::direct {

enum class TransferState : uint32_t {
  kNone,
  kOffered,
  kTaken,
  kHelped,
  kCopyingAside,
  kAside,
  kTakenAside,
  kStreaming,
  kStreamTaken,
  kCancelled,
  kAcknowledged,
  kMatched,
  kCopyingMatched,
  kDone
};

/// Content that both sides copy together is cut into pieces of at most this size.
inline constexpr uint64_t kPieceBytes = 128 << 10;
/// From here on both sides copy. (Content that is read by attaching: from kAttachSharedFrom on.)
inline constexpr uint64_t kSharedFrom = 2 * kPieceBytes;
/// From here on both sides copy once the sender has waited.
inline constexpr uint64_t kHelpedFrom = 64 << 10;

/// The payload of a record of that kind: the rest of its first line.
struct Transfer {
  std::atomic<TransferState> state;
  uint32_t attached;  // 1: the address is good in the sender only (attach.h); kFromOtherNode
  uint64_t bytes;
  char* address;    // of the content, in the sender's partition unless attached
  uint64_t layout;  // offset of its layout in message memory, or 0
  uint64_t aside;   // offset in message memory of the copy, or of the ring
};
static_assert(sizeof(Transfer) == kLinePayload);
/// Transfer::attached of a message that came from another node; the address is that of its Arrival (between_nodes.h).
inline constexpr uint32_t kFromOtherNode = 2;

/// Whether the receiver copies from the sender's memory, or is about to.
inline bool is_taken(TransferState state) { return state == TransferState::kTaken || state == TransferState::kHelped; }

inline Transfer& transfer_of(RecordHeader* record) { return *reinterpret_cast<Transfer*>(record->payload()); }

/// The lines after the first one where the content is so long that both sides may copy it, or that it may have to stream.
struct alignas(kLineBytes) Sharing {
  // By the receiver, once, if both are to copy.
  char* target;  // in the receiver's partition unless attached
  uint64_t target_layout;
  uint64_t copied_bytes;  // of the content that fits the receive
  uint64_t piece_bytes;
  uint64_t pieces;
  uint32_t target_attached;      // 1: the target's address is good in the receiver only
  std::atomic<uint32_t> shared;  // the fields above say how both copy
  uint64_t ring_bytes;           // of a stream; by the sender, before the record is published

  alignas(kLineBytes) std::atomic<uint64_t> next_piece;
  std::atomic<uint64_t> done_pieces;
  std::atomic<uint64_t> written;   // into the ring, by the sender
  std::atomic<uint64_t> consumed;  // from the ring, by the receiver
};

/// Whether a Sharing follows.
inline bool has_sharing(const Transfer& transfer) {
  return transfer.bytes >= (transfer.attached != 0 ? kAttachSharedFrom : kHelpedFrom);
}
static_assert(kAttachSharedFrom <= kHelpedFrom);
inline Sharing& sharing_of(RecordHeader* record) {
  return *reinterpret_cast<Sharing*>(reinterpret_cast<char*>(record) + kLineBytes);
}
inline uint64_t transfer_payload(uint64_t bytes) {
  return sizeof(Transfer) + (bytes >= kAttachSharedFrom ? sizeof(Sharing) : 0);
}

/// The ring of a stream: the smaller one where many messages stream at once, or the memory of the node is small.
inline constexpr uint64_t kRingBytes = 1 << 20;
inline constexpr uint64_t kSmallRingBytes = 256 << 10;

enum class Pieces {
  kOthersGoOn,  // none is left to claim, the other side is at its last
  kComplete,    // this side has finished the last
  kLost,        // the other process's memory cannot be reached
};

/// Copies pieces until none is left to claim.
Pieces copy_pieces(Sharing& sharing, const Content& from, const Content& to, const Way& way);

}  // namespace headroom::direct
