// Content that goes through a ring in message memory: both sides; see endpoint.h and transfer.h.
//
// Content that cannot be read where it is, and may not be copied aside as a whole since memory is short, streams. The sender
// writes a piece behind what it has written, the receiver takes what is there, and each says how far it is in two words of the
// transfer and wakes the other. So a message of any size needs no more than its ring. A stream that its receiver cannot take
// (it is away and must be asked first, or waits for itself) is copied aside after all.
#include <algorithm>

#include "base/log.h"
#include "direct/copy.h"
#include "direct/endpoint.h"
#include "sched/preemption.h"
#include "trace/counters.h"

namespace headroom::direct {
namespace {

using trace::Counter;

constexpr uint64_t kStreamStep = 128 << 10;
static_assert(kSmallRingBytes >= 2 * kStreamStep);  // one is written while the other is read
/// Rings of full size have together at most this part of what may be held: message memory cannot leave, either.
constexpr uint64_t kRingPart = 4;

}  // namespace

bool Endpoint::begin_stream(Sending& sending) {
  Transfer& transfer = transfer_of(sending.record);
  const bool are_many = aside_bytes_.load(std::memory_order_relaxed) + kRingBytes > most_aside() / kRingPart;
  const uint64_t bytes = are_many ? kSmallRingBytes : kRingBytes;
  if (!has_sharing(transfer)) {
    return false;  // too short
  }
  void* ring = memory_.allocate(bytes);
  if (ring == nullptr) {
    base::log_debug(base::Part::kDirect, "no message memory for a ring of %llu KiB",
                    static_cast<unsigned long long>(bytes >> 10));
    return false;
  }
  base::log_trace(base::Part::kDirect, "a message goes through a ring of %llu KiB",
                  static_cast<unsigned long long>(bytes >> 10));
  transfer.aside = memory_.offset_of(ring);
  sending.aside_bytes = bytes;
  aside_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  Sharing& sharing = sharing_of(sending.record);
  sharing.ring_bytes = bytes;
  sharing.written.store(0, std::memory_order_relaxed);
  sharing.consumed.store(0, std::memory_order_relaxed);
  transfer.state.store(TransferState::kStreaming, std::memory_order_relaxed);
  sending.streams = true;
  sending.next = streams_out_;
  streams_out_ = &sending;
  return true;
}

/// It is not among the streams any more.
void Endpoint::end_stream(Sending& sending) {
  Sending** link = &streams_out_;
  while (*link != &sending) {
    link = &(*link)->next;
  }
  *link = sending.next;
  sending.streams = false;
}

/// A stream that its receiver cannot take, since it is away and must be asked first, or is this process, which waits for it:
/// copied aside although memory is short.
void Endpoint::set_stream_aside(Sending& sending) {
  Transfer& transfer = transfer_of(sending.record);
  Root& root = root_of(sending.member);
  TransferState streaming = TransferState::kStreaming;
  const bool asks_later = root.away.load(std::memory_order_acquire) != 0 && root.asks_later.load(std::memory_order_relaxed);
  if (!(asks_later || sending.member == session_->index) ||
      !transfer.state.compare_exchange_strong(streaming, TransferState::kCopyingAside, std::memory_order_acq_rel)) {
    return;
  }
  const sched::Uncut uncut;  // a receiver that claims it now spins until it is copied
  char* const ring = memory_.at<char>(transfer.aside);
  if (!gather_aside(sending)) {
    transfer.state.store(TransferState::kStreaming, std::memory_order_release);
    return;
  }
  node::take_for_message(*session_->ledger, *session_->self, static_cast<int64_t>(sending.content.bytes));
  sending.reserved = true;
  const uint64_t ring_bytes = sharing_of(sending.record).ring_bytes;
  memory_.release(ring, ring_bytes);
  aside_bytes_.fetch_sub(ring_bytes, std::memory_order_relaxed);
  end_stream(sending);
  trace::count_alone(Counter::kMessagesAsideStreams);
  transfer.state.store(TransferState::kAside, std::memory_order_release);
}

bool Endpoint::move_stream(Sending& sending) {
  Sharing& sharing = sharing_of(sending.record);
  const uint64_t consumed = sharing.consumed.load(std::memory_order_acquire);
  bool moved = false;
  const uint64_t ring_bytes = sharing.ring_bytes;
  while (!sending.cancelled && sending.streamed < sending.content.bytes &&
         sending.streamed - consumed + kStreamStep <= ring_bytes) {
    const uint64_t left = sending.content.bytes - sending.streamed;
    const uint64_t step = std::min(left, kStreamStep);
    Walk from(sending.content);
    from.skip(sending.streamed);
    Walk into({memory_.base() + transfer_of(sending.record).aside + sending.streamed % ring_bytes, step, nullptr});
    copy(into, from, step);
    sending.streamed += step;
    sharing.written.store(sending.streamed, std::memory_order_release);
    moved = true;
  }
  if (moved) {
    wake(sending.member);
  }
  return moved;
}

/// Takes what the ring has. `receiving.record` is nullptr once all has come.
bool Endpoint::move_stream(Receiving& receiving) {
  Transfer& transfer = transfer_of(receiving.record);
  if (transfer.attached == kFromOtherNode) {
    return move_arrival(receiving);
  }
  Sharing& sharing = sharing_of(receiving.record);
  const uint64_t written = sharing.written.load(std::memory_order_acquire);
  if (receiving.streamed == written) {
    return false;
  }
  while (receiving.streamed < written) {
    const uint64_t in_ring = receiving.streamed % sharing.ring_bytes;
    uint64_t step = written - receiving.streamed;
    step = std::min(step, sharing.ring_bytes - in_ring);
    const uint64_t room = receiving.into.bytes > receiving.streamed ? receiving.into.bytes - receiving.streamed : 0;
    const uint64_t kept = std::min(step, room);
    if (kept > 0) {
      Walk from({memory_.at<char>(transfer.aside + in_ring), kept, nullptr});
      Walk into({receiving.into.address, receiving.streamed + kept, receiving.into.layout});
      into.skip(receiving.streamed);
      copy(into, from, kept);
    }
    receiving.streamed += step;
  }
  sharing.consumed.store(receiving.streamed, std::memory_order_release);
  if (receiving.streamed == transfer.bytes) {
    transfer.state.store(TransferState::kDone, std::memory_order_release);
    ChannelReader::give_back(receiving.record);
    receiving.record = nullptr;
  }
  wake(receiving.member);
  return true;
}

}  // namespace headroom::direct
