// Content that its sender copies aside into message memory, so that the sender need not wait for its receiver; see endpoint.h
// and transfer.h.
//
// The amount that may lie there is bounded. Content as short as every MPI library buffers always may lie there; other content
// may as far as the rank's share of memory allows, since message memory cannot leave. Long content is reserved in the budget.
// Where there is no room, content that cannot stay where it is goes through a ring instead (streaming.cc), and its sender
// waits.
#include <algorithm>

#include "direct/copy.h"
#include "direct/endpoint.h"
#include "pager/pager.h"
#include "sched/preemption.h"
#include "trace/counters.h"

namespace headroom::direct {
namespace {

/// The longest content that is copied aside while memory is short, as long as all copies are no more than may be held; other
/// content streams.
constexpr uint64_t kLargestAsideShort = 1 << 20;
/// The limit for shorter content that is copied aside while memory is enough: this part of the rank's share, and no more than
/// so much.
constexpr int64_t kAsidePart = 8;
constexpr int64_t kMostAside = 64 << 20;
/// Content that has waited so long for room is copied aside without it: its receiver may wait for the message that comes next.
constexpr uint64_t kDeniedNs = 100'000'000;

}  // namespace

/// How much may be copied aside in all.
uint64_t Endpoint::most_aside() const {
  if (pager::is_armed()) {
    return pager::largest_hold();
  }
  const node::Ledger& ledger = *session_->ledger;
  const int64_t alive = ledger.alive.load(std::memory_order_relaxed);
  const int64_t part = ledger.budget / (alive > 0 ? alive : 1) / kAsidePart;
  return static_cast<uint64_t>(std::min(part, kMostAside));
}

/// Whether content of so many bytes may be copied aside, which takes `more` memory. Content as short as every library buffers
/// always may. Content so long that it is reserved in the budget may as far as the budget has room.
bool Endpoint::has_room_aside(uint64_t bytes, uint64_t more) const {
  if (bytes <= kLargestPayload || (bytes >= kRingBytes && !pager::is_armed())) {
    return true;
  }
  const uint64_t most = most_aside();
  const bool is_little = bytes <= kSmallRingBytes && most < kRingBytes;  // in all no more than a ring
  return aside_bytes_.load(std::memory_order_relaxed) + more <= (is_little ? kRingBytes : most);
}

/// Copies the content into message memory; false if it may not, or cannot, be there. `must`: nobody may wait for its receiver.
bool Endpoint::set_aside(Sending& sending, bool must) {
  const uint64_t bytes = sending.content.bytes;
  // Content that streams while memory is short does so although nobody may wait: its sender has to see to that.
  const bool may_stream = bytes > kSmallRingBytes && pager::is_armed();
  if ((may_stream && bytes > kLargestAsideShort) || ((may_stream || !must) && !has_room_aside(bytes, bytes))) {
    return false;
  }
  const bool counted = bytes >= kRingBytes;
  const auto amount = static_cast<int64_t>(bytes);
  if (counted && !node::reserve_for_message(*session_->ledger, *session_->self, amount)) {
    return false;
  }
  const bool done = gather_aside(sending);
  if (counted && !done) {
    node::release_of_message(*session_->ledger, *session_->self, amount);
  }
  sending.reserved = counted && done;
  return done;
}

/// The same of content that cannot stay where it is. Where there is no room, content that needs no more than a small ring is
/// copied all the same, and its sender waits. Longer content waits with a small ring (begin_stream()), so that no incomplete
/// send takes more memory than the content that its program keeps for it.
bool Endpoint::set_aside_at_once(Sending& sending) {
  if (set_aside(sending, sending.member == session_->index)) {
    return true;
  }
  sending.waits = sending.content.bytes <= kSmallRingBytes && set_aside(sending, true);
  return sending.waits;
}

/// The same of a message to this process itself, which waits for it and so will not receive it first: whatever the budget.
bool Endpoint::set_own_aside(Sending& sending) {
  if (!gather_aside(sending)) {
    return false;
  }
  node::take_for_message(*session_->ledger, *session_->self, static_cast<int64_t>(sending.aside_bytes));
  sending.reserved = sending.aside_bytes > 0;
  return true;
}

/// The same, and it counts nowhere.
bool Endpoint::gather_aside(Sending& sending) {
  const uint64_t bytes = sending.content.bytes;
  void* piece = bytes > 0 ? memory_.allocate(bytes) : own_root().channel_to;
  if (piece == nullptr) {
    return false;
  }
  if (bytes > 0) {
    gather(static_cast<char*>(piece), sending.content);
  }
  transfer_of(sending.record).aside = memory_.offset_of(piece);
  sending.aside_bytes = bytes;
  aside_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  sending.copied_aside = true;
  return true;
}

/// Gives the copy or the ring back, if there is one.
void Endpoint::release_aside(Sending& sending) {
  if (sending.aside_bytes == 0) {
    return;
  }
  memory_.release(memory_.at<char>(transfer_of(sending.record).aside), sending.aside_bytes, !pager::is_armed());
  aside_bytes_.fetch_sub(sending.aside_bytes, std::memory_order_relaxed);
  if (sending.reserved) {
    node::release_of_message(*session_->ledger, *session_->self, static_cast<int64_t>(sending.aside_bytes));
  }
  sending.aside_bytes = 0;
}

/// Copies aside without the lock: until it is over, a send is its thread's alone.
void Endpoint::copy_aside(Sending* sending, bool must) {
  must = must || sending->member == session_->index;
  if (!must && !sending->streams && !has_room_aside(sending->content.bytes, sending->waits ? 0 : sending->content.bytes)) {
    const uint64_t now = base::monotonic_ns();
    sending->denied_ns = sending->denied_ns == 0 ? now : sending->denied_ns;
    if (now - sending->denied_ns < kDeniedNs) {
      return;  // without a word to the receiver, which may be about to take it
    }
    must = true;
  }
  sending->waits = false;  // if it was copied without room for that, there is some now
  if (sending->streams) {
    const Guard guard(*this);
    set_stream_aside(*sending);
    return;
  }
  if (set_matched_aside(*sending, must)) {
    return;
  }
  TransferState offered = TransferState::kOffered;
  if (sending->synchronous ||
      !transfer_of(sending->record)
           .state.compare_exchange_strong(offered, TransferState::kCopyingAside, std::memory_order_acq_rel)) {
    return;
  }
  const sched::Uncut uncut;  // a receiver that claims it now spins until it is copied
  const bool done = set_aside(*sending, must) || (sending->member == session_->index && set_own_aside(*sending));
  transfer_of(sending->record).state.store(done ? TransferState::kAside : TransferState::kOffered, std::memory_order_release);
}

}  // namespace headroom::direct
