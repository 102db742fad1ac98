// The sender's side; see endpoint.h and transfer.h.
#include <cstring>

#include "direct/copy.h"
#include "direct/endpoint.h"
#include "direct/pool.h"
#include "pager/pager.h"
#include "trace/counters.h"

namespace headroom::direct {
namespace {

using trace::Counter;

constexpr uint64_t kRingBytes = 1 << 20;
constexpr uint64_t kStreamStep = 128 << 10;
/// What is copied aside while memory is short; larger content streams.
constexpr uint64_t kLargestAsideShort = 1 << 20;

Layout* layout_of(const Content& content) { return const_cast<Layout*>(content.layout); }

void gather(char* to, const Content& content) {
  Walk from(content);
  Walk into({to, content.bytes, nullptr});
  copy(into, from, content.bytes);
}

}  // namespace

ChannelWriter* Endpoint::writer_to(int member) {
  ChannelWriter& writer = writers_[member];
  if (__builtin_expect(!writer.is_open(), 0)) {
    if (!writer.open(memory_)) {
      return nullptr;
    }
    own_root().channel_to[member].store(writer.first_chunk(), std::memory_order_release);
    writing_[writing_count_++] = member;
    memory_.root<Root>(member)->opened.fetch_add(1, std::memory_order_release);
  }
  return &writer;
}

bool Endpoint::write_record(int member, const Envelope& envelope, const Content& content) {
  ChannelWriter* writer = writer_to(member);
  RecordHeader* record = writer != nullptr ? writer->begin(content.bytes) : nullptr;
  if (record == nullptr) {
    return false;
  }
  record->tag = envelope.tag;
  record->context = envelope.context;
  record->source = envelope.source;
  record->bytes = static_cast<uint32_t>(content.bytes);
  if (content.layout == nullptr) {
    copy_short(record->payload(), content.address, content.bytes);
  } else {
    gather(record->payload(), content);
  }
  writer->publish(record, RecordKind::kPayload);
  trace::count_alone(Counter::kMessagesInline);
  return true;
}

bool Endpoint::write_note(int member, const Envelope& envelope, const Transfer& transfer) {
  ChannelWriter* writer = writer_to(member);
  RecordHeader* record = writer != nullptr ? writer->begin(sizeof(TransferNote)) : nullptr;
  if (record == nullptr) {
    return false;
  }
  record->tag = envelope.tag;
  record->context = envelope.context;
  record->source = envelope.source;
  record->bytes = sizeof(TransferNote);
  const bool offered = transfer.state.load(std::memory_order_relaxed) == TransferState::kOffered;
  const TransferNote note = {memory_.offset_of(&transfer), transfer.bytes, offered ? transfer.address : nullptr};
  memcpy(record->payload(), &note, sizeof note);
  writer->publish(record, RecordKind::kTransfer);
  return true;
}

/// Lets the receiver read the content where it is.
bool Endpoint::offer(Sending& sending) {
  const Span span = span_of(sending.content);
  if (pager::is_armed() && held_bytes_ + span.bytes > pager::largest_hold()) {
    return false;
  }
  uint64_t offset = 0;
  if (!pager::hold_for_peer(span.begin, span.bytes, false, offset)) {
    return false;
  }
  sending.held = span;
  held_bytes_ += span.bytes;
  Transfer& transfer = *sending.transfer;
  transfer.address =
      reinterpret_cast<char*>(arena::partition_base(session_->index) + offset) + (sending.content.address - span.begin);
  transfer.layout = sending.content.layout != nullptr ? memory_.offset_of(sending.content.layout) : 0;
  transfer.state.store(TransferState::kOffered, std::memory_order_relaxed);
  return true;
}

/// Copies the content into message memory; false if there is no room for that.
bool Endpoint::set_aside(Sending& sending) {
  const uint64_t bytes = sending.content.bytes;
  if (pager::is_armed() && bytes > kLargestAsideShort) {
    return false;
  }
  const bool counted = bytes >= kRingBytes;
  const auto amount = static_cast<int64_t>(bytes);
  if (counted && !node::reserve(*session_->ledger, *session_->self, amount)) {
    return false;
  }
  void* piece = bytes > 0 ? memory_.allocate(bytes) : own_root().channel_to;
  if (piece == nullptr) {
    if (counted) {
      node::release(*session_->ledger, *session_->self, amount);
    }
    return false;
  }
  if (bytes > 0) {
    gather(static_cast<char*>(piece), sending.content);
  }
  sending.transfer->aside = memory_.offset_of(piece);
  sending.transfer->aside_bytes = bytes;
  sending.transfer->reserved = counted ? 1 : 0;
  trace::count_alone(Counter::kMessagesAside);
  trace::count_alone(Counter::kMessagesAsideBytes, bytes);
  return true;
}

bool Endpoint::begin_stream(Sending& sending) {
  void* ring = memory_.allocate(kRingBytes);
  if (ring == nullptr) {
    return false;
  }
  Transfer& transfer = *sending.transfer;
  transfer.aside = memory_.offset_of(ring);
  transfer.aside_bytes = kRingBytes;
  transfer.reserved = 0;
  transfer.written.store(0, std::memory_order_relaxed);
  transfer.consumed.store(0, std::memory_order_relaxed);
  transfer.state.store(TransferState::kStreaming, std::memory_order_relaxed);
  sending.streams = true;
  sending.next = streams_out_;
  streams_out_ = &sending;
  trace::count_alone(Counter::kMessagesStreamed);
  return true;
}

bool Endpoint::move_stream(Sending& sending) {
  Transfer& transfer = *sending.transfer;
  const uint64_t consumed = transfer.consumed.load(std::memory_order_acquire);
  bool moved = false;
  while (sending.streamed < sending.content.bytes && sending.streamed - consumed + kStreamStep <= kRingBytes) {
    const uint64_t left = sending.content.bytes - sending.streamed;
    const uint64_t step = left < kStreamStep ? left : kStreamStep;
    Walk from(sending.content);
    from.skip(sending.streamed);
    Walk into({memory_.base() + transfer.aside + sending.streamed % kRingBytes, step, nullptr});
    copy(into, from, step);
    sending.streamed += step;
    transfer.written.store(sending.streamed, std::memory_order_release);
    moved = true;
  }
  if (moved) {
    wake(sending.member);
  }
  return moved;
}

SendOutcome Endpoint::send(int member, const Envelope& envelope, const Content& content, bool synchronous, Sending*& sending) {
  const Guard guard(*this);
  trace::count_alone(Counter::kMessagesDirect);
  trace::count_alone(Counter::kMessagesDirectBytes, content.bytes);
  if (content.bytes <= kInlineBytes && !synchronous) {
    if (!write_record(member, envelope, content)) {
      return SendOutcome::kNoMemory;
    }
    wake(member);
    return SendOutcome::kComplete;
  }
  auto* transfer = static_cast<Transfer*>(memory_.allocate(sizeof(Transfer)));
  if (transfer == nullptr) {
    return SendOutcome::kNoMemory;
  }
  sending = take_from(free_sendings_);
  *sending = Sending{};
  sending->transfer = transfer;
  sending->content = content;
  sending->synchronous = synchronous;
  sending->member = member;
  transfer->bytes = content.bytes;
  transfer->aside_bytes = 0;
  transfer->shared.store(0, std::memory_order_relaxed);
  keep(layout_of(content));
  if (!offer(*sending)) {
    if (!synchronous && content.bytes <= kLargestPayload) {
      release_transfer(transfer);
      let_go(layout_of(content), memory_);
      give_to(free_sendings_, sending);
      sending = nullptr;
      const bool written = write_record(member, envelope, content);
      wake(member);
      return written ? SendOutcome::kComplete : SendOutcome::kNoMemory;
    }
    if (set_aside(*sending)) {
      transfer->state.store(TransferState::kAside, std::memory_order_relaxed);
    } else if (!begin_stream(*sending)) {
      return SendOutcome::kNoMemory;
    }
  }
  if (!write_note(member, envelope, *transfer)) {
    return SendOutcome::kNoMemory;
  }
  wake(member);
  return is_finished_locked(sending) ? (sending = nullptr, SendOutcome::kComplete) : SendOutcome::kPending;
}

void Endpoint::release_transfer(Transfer* transfer) {
  if (transfer->aside_bytes > 0) {
    memory_.release(memory_.at<char>(transfer->aside), transfer->aside_bytes);
    if (transfer->reserved != 0) {
      node::release(*session_->ledger, *session_->self, static_cast<int64_t>(transfer->aside_bytes));
    }
  }
  memory_.release(transfer, sizeof(Transfer));
}

bool Endpoint::is_finished_locked(Sending* sending) {
  Transfer& transfer = *sending->transfer;
  TransferState state = transfer.state.load(std::memory_order_acquire);
  if (state == TransferState::kTaken && transfer.shared.load(std::memory_order_acquire) != 0) {
    const auto* layout = transfer.target_layout != 0 ? memory_.at<Layout>(transfer.target_layout) : nullptr;
    if (!sending->helped) {
      sending->helped = true;
      trace::count_alone(Counter::kMessagesHelped);
    }
    // The receiver alone says that it is done, so that it never looks at a transfer that was used again.
    (void)copy_pieces(transfer, sending->content, {transfer.target, transfer.copied_bytes, layout});
    state = transfer.state.load(std::memory_order_acquire);
  }
  const bool leaves_aside = (state == TransferState::kAside || state == TransferState::kTakenAside) && !sending->synchronous;
  if (state != TransferState::kDone && !leaves_aside && !sending->cancelled) {
    return false;
  }
  if (sending->held.bytes > 0) {
    pager::drop_hold(sending->held.begin, sending->held.bytes, false);
    held_bytes_ -= sending->held.bytes;
  }
  if (sending->streams) {
    Sending** link = &streams_out_;
    while (*link != sending) {
      link = &(*link)->next;
    }
    *link = sending->next;
  }
  if (state == TransferState::kDone) {
    release_transfer(&transfer);
  } else {
    left_.push(&transfer);
  }
  let_go(layout_of(sending->content), memory_);
  give_to(free_sendings_, sending);
  return true;
}

bool Endpoint::is_finished(Sending* sending) {
  const Guard guard(*this);
  return is_finished_locked(sending);
}

void Endpoint::copy_aside(Sending* sending) {
  const Guard guard(*this);
  TransferState offered = TransferState::kOffered;
  if (sending->synchronous ||
      !sending->transfer->state.compare_exchange_strong(offered, TransferState::kCopyingAside, std::memory_order_acq_rel)) {
    return;
  }
  const bool done = set_aside(*sending);
  sending->transfer->state.store(done ? TransferState::kAside : TransferState::kOffered, std::memory_order_release);
}

bool Endpoint::cancel(Sending* sending) {
  const Guard guard(*this);
  for (TransferState state : {TransferState::kOffered, TransferState::kAside}) {
    if (sending->transfer->state.compare_exchange_strong(state, TransferState::kCancelled, std::memory_order_acq_rel)) {
      sending->cancelled = true;
      return true;
    }
  }
  return false;
}

/// Takes back transfers that their receivers have done with. Looks at a few in turn: there may be very many.
void Endpoint::reap() {
  constexpr int kLooks = 4;
  for (int look = 0; look < kLooks && !left_.is_empty(); ++look) {
    Transfer* transfer = left_.pop();
    if (transfer->state.load(std::memory_order_acquire) == TransferState::kDone) {
      release_transfer(transfer);
    } else {
      left_.push(transfer);
    }
  }
}

bool Endpoint::is_drained() {
  const Guard guard(*this);
  (void)progress_locked();
  return streams_out_ == nullptr;
}

}  // namespace headroom::direct
