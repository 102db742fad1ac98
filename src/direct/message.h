// Messages as the endpoint keeps them: those that are being sent, receives, and those that nobody has asked for yet.
//
// Their memory is the caller's or the endpoint's own, private to the process; no other process looks at it.
#pragma once

#include <atomic>
#include <cstdint>

#include "direct/between_nodes.h"
#include "direct/channel.h"
#include "direct/layout.h"
#include "direct/matching.h"
#include "direct/transfer.h"

namespace headroom::direct {

/// A message that is being sent and is not complete.
struct Sending {
  RecordHeader* record = nullptr;  // with its transfer
  Content content = {};
  Span held = {};           // bytes 0: nothing is held
  uint64_t held_bytes = 0;  // of blocks that it lies in
  bool synchronous = false;
  bool cancelled = false;
  bool streams = false;
  bool helped = false;
  bool copied_aside = false;
  bool waits = false;          // for its receiver, although it is copied aside: there was no room for that
  uint64_t denied_ns = 0;      // when it was first denied a copy, or to go on, for lack of room
  uint64_t seen_taken_ns = 0;  // when it was first seen that the receiver copies alone
  int member = 0;
  uint64_t streamed = 0;     // bytes put into the ring
  uint64_t aside_bytes = 0;  // of the copy or the ring, 0: there is none
  bool reserved = false;     // they count in the ledger
  // To another node:
  bool ended = false;               // its receiver has all that it wants
  uint32_t pieces_out = 0;          // on their way
  bool* was_cancelled = nullptr;    // where to say so, once that is known
  NetworkPiece* readied = nullptr;  // held for its receiver's card
  Sending* next = nullptr;          // among the streams, those left, or the free ones
};

/// Sends that are complete for the program and not yet for their receivers, first in, first out.
class LeftSendings {
 public:
  [[nodiscard]] bool is_empty() const { return first_ == nullptr; }
  void push(Sending* sending) {
    sending->next = nullptr;
    (last_ != nullptr ? last_->next : first_) = sending;
    last_ = sending;
  }
  Sending* pop() {
    Sending* sending = first_;
    first_ = sending->next;
    last_ = first_ != nullptr ? last_ : nullptr;
    return sending;
  }

 private:
  Sending* first_ = nullptr;
  Sending* last_ = nullptr;
};

/// A receive, posted or complete.
struct Receiving : PostedReceive {
  Content into = {};
  std::atomic<bool> complete = false;
  // The thread that waits for it asks finish() again and again, so a long content may be left to that (apart.cc).
  bool may_be_left = false;
  std::atomic<bool> is_left = false;
  bool cancelled = false;
  bool truncated = false;
  int32_t source = 0;
  int32_t tag = 0;
  uint64_t bytes = 0;              // of the message, even if fewer were stored
  int member = -1;                 // that the message comes from, -1 if not known yet
  RecordHeader* record = nullptr;  // while it is fed by a stream
  uint64_t streamed = 0;
  Receiving* next = nullptr;      // among those fed by streams, or those that are left
  Receiving* previous = nullptr;  // among those that are left
  // A receive that waits for messages elsewhere too (the MPI library's, from other nodes) is begun there, or says that it is
  // not, and is asked before it gets a message here. One that is refused is elsewhere's for good, which is right only as long
  // as such receives have the same order on both ways. So both are called with the endpoint's lock, by a thread of the
  // program's, and call nothing of the program's. `message` tells messages apart. nullptr: it is not asked.
  bool (*begin_elsewhere)(void* owner) = nullptr;
  bool (*claim_message)(void* owner, int32_t tag, uint64_t message) = nullptr;
  void* owner = nullptr;
  bool withdrawn = false;  // it was taken out of the queue, since it got a message elsewhere
};

/// A message that nobody has asked for yet, or that was taken out of the queue to be received (MPI_Mprobe).
struct Message : UnexpectedMessage {
  RecordHeader* record = nullptr;
  int member = 0;
  uint64_t bytes = 0;
  Message* next = nullptr;
};

/// The facts that MPI_Probe tells of a message.
struct Found {
  Envelope envelope;
  uint64_t bytes;
};

struct NextMessage {
  uint64_t bytes;
  int32_t tag;
};

enum class SendKind : uint8_t {
  kStandard,
  kBuffered,  // complete whatever its receiver does
  kSynchronous,
  kCollective,  // a part of a collective: counted apart
  kBroadcast,   // the same, of one in which the sender goes on at once: all fetch what is longer from the root at a time
  kRooted,      // the same, from or to the one rank that has a part with each
};

enum class SendOutcome { kComplete, kPending, kNoMemory };

}  // namespace headroom::direct
