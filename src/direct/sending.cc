// The sender's side; see endpoint.h and transfer.h.
#include <cstring>

#include "direct/copy.h"
#include "direct/endpoint.h"
#include "direct/pool.h"
#include "pager/pager.h"
#include "sched/scheduler.h"
#include "trace/counters.h"

namespace headroom::direct {
namespace {

using trace::Counter;

/// Content up to this size is brought nearer to its receiver while it is waited for.
constexpr uint64_t kBroughtBytes = 16 << 10;
/// The sender offers to help once the receiver has copied for as long as this rate would take: content that is in the caches is
/// copied by then.
constexpr uint64_t kBytesPerNs = 40;
Layout* layout_of(const Content& content) { return const_cast<Layout*>(content.layout); }

}  // namespace

[[gnu::always_inline]] inline ChannelWriter* Endpoint::writer_to(int member) {
  ChannelWriter& writer = writers_[member];
  if (__builtin_expect(!writer.is_open(), 0)) {
    if (!writer.open(memory_)) {
      return nullptr;
    }
    own_root().channel_to[member].store(writer.first_chunk(), std::memory_order_release);
    writing_[writing_count_++] = member;
    root_of(member).opened_by.add(session_->index);
    root_of(member).opened.fetch_add(1, std::memory_order_release);
  }
  return &writer;
}

[[gnu::always_inline]] inline bool Endpoint::begin_record(int member, const Envelope& envelope, uint64_t payload, bool on_line,
                                                          RecordHeader*& record) {
  ChannelWriter* writer = writer_to(member);
  record = writer != nullptr ? writer->begin(payload, on_line) : nullptr;
  if (record == nullptr) {
    return false;
  }
  record->tag = envelope.tag;
  record->context = envelope.context;
  record->source = envelope.source;
  record->bytes = static_cast<uint32_t>(payload);
  return true;
}

/// A record of this process to itself.
RecordHeader* Endpoint::begin_own_record(const Envelope& envelope, uint64_t payload, bool on_line) {
  RecordHeader* record = nullptr;
  return begin_record(session_->index, envelope, payload, on_line, record) ? record : nullptr;
}

/// The longest content that goes in the record although it could be fetched.
uint64_t Endpoint::most_in_record(int member, SendKind kind) const {
  if (kind == SendKind::kBroadcast && !pager::is_armed()) {
    return kOneWayInlineBytes;
  }
  // Chunks are not given back, and count. A few channels may take several each, but not those to all of many ranks.
  constexpr uint64_t kMuch = 4 << 20;
  constexpr uint64_t kFewChunks = 8;
  const uint64_t few = memory_.used_bytes() < kMuch ? kFewChunks : 2;
  if (writers_[member].has_room(few) && !pager::is_armed()) {
    return kind == SendKind::kRooted ? kOneWayInlineBytes : kInlineBytes;
  }
  return kind == SendKind::kStandard ? kLeastInlineBytes : kInlineBytes;
}

/// `passes_on`: not if others follow, whose beginning may share a line with its end.
[[gnu::always_inline]] inline bool Endpoint::write_record(int member, const Envelope& envelope, const Content& content,
                                                          bool passes_on) {
  RecordHeader* record = nullptr;
  if (!begin_record(member, envelope, content.bytes, false, record)) {
    return false;
  }
  if (content.layout == nullptr) {
    copy_short(record->payload(), content.address, content.bytes);
  } else {
    gather(record->payload(), content);
  }
  writers_[member].publish(record, RecordKind::kPayload, is_in_a_row(member));
  if (passes_on) {
    pass_on(record, sizeof *record + content.bytes);
  }
  one_more_in_a_row(member);
  trace::count_alone(Counter::kMessagesInline);
  wake(member);
  return true;
}

/// Lets the receiver read the content where it is.
bool Endpoint::offer(Sending& sending) {
  const Span span = span_of(sending.content);
  const uint64_t held_bytes = pager::bytes_of_hold(span.begin, span.bytes);
  if (held_.is_full() ||
      (pager::is_armed() && held_.bytes() + (held_.has(span) ? 0 : held_bytes) > pager::largest_optional_hold())) {
    return false;
  }
  uint64_t offset = 0;
  if (!pager::hold_for_peer(span.begin, span.bytes, false, offset)) {
    return false;
  }
  sending.held = span;
  sending.held_bytes = held_bytes;
  held_.add(span, held_bytes);
  Transfer& transfer = transfer_of(sending.record);
  transfer.address =
      reinterpret_cast<char*>(arena::partition_base(session_->index) + offset) + (sending.content.address - span.begin);
  transfer.layout = sending.content.layout != nullptr ? memory_.offset_of(sending.content.layout) : 0;
  transfer.state.store(TransferState::kOffered, std::memory_order_relaxed);
  return true;
}

/// Lets the receiver read the content by attaching, or where it is if that is this same process.
bool Endpoint::offer_attached(Sending& sending) {
  const Content& content = sending.content;
  const Span span = span_of(content);
  const bool own = sending.member == session_->index;
  if (content.bytes < kAttachFrom || pager::overlaps(span.begin, span.bytes) ||
      !(own ||
        (root_of(sending.member).attaches_to[session_->index].load(std::memory_order_acquire) && suits_attaching(content)))) {
    return false;
  }
  Transfer& transfer = transfer_of(sending.record);
  transfer.attached = own ? 0 : 1;
  transfer.address = content.address;
  transfer.layout = content.layout != nullptr ? memory_.offset_of(content.layout) : 0;
  if (has_sharing(transfer)) {
    sharing_of(sending.record).shared.store(0, std::memory_order_relaxed);
  }
  transfer.state.store(TransferState::kOffered, std::memory_order_relaxed);
  return true;
}

SendOutcome Endpoint::send(int member, const Envelope& envelope, const Content& content, SendKind kind, uint64_t looks,
                           Sending*& sending) {
  const Guard guard(*this);
  const bool synchronous = kind == SendKind::kSynchronous;
  if (__builtin_expect(is_on_other_node(member), 0)) {
    return send_to_other_node(member, envelope, content, kind, sending);
  }
  kind = kind == SendKind::kBuffered ? SendKind::kStandard : kind;  // inside a node everything can be copied aside
  const bool collective = kind != SendKind::kStandard && !synchronous;
  trace::count_alone(collective ? Counter::kMessagesCollective : Counter::kMessagesDirect);
  trace::count_alone(collective ? Counter::kMessagesCollectiveBytes : Counter::kMessagesDirectBytes, content.bytes);
  // Where each process has a core of its own, and the receiver waits for this message and not for several.
  const bool passes_on = can_pass_on_ && !is_in_a_row(member) && !sched::waiters_may_sleep();
  if (!synchronous && (content.bytes <= kLeastInlineBytes || content.bytes <= most_in_record(member, kind))) {
    return write_record(member, envelope, content, passes_on) ? SendOutcome::kComplete : SendOutcome::kNoMemory;
  }
  if (!left_.is_empty()) {
    reap();  // a program that never waits makes no progress otherwise
  }
  RecordHeader* record = nullptr;
  if (!begin_record(member, envelope, transfer_payload(content.bytes), true, record)) {
    return SendOutcome::kNoMemory;
  }
  sending = take_from(free_sendings_);
  *sending = Sending{};
  sending->record = record;
  sending->content = content;
  sending->synchronous = synchronous;
  sending->member = member;
  Transfer& transfer = transfer_of(record);
  transfer.bytes = content.bytes;
  transfer.attached = 0;
  if (has_sharing(transfer)) {
    sharing_of(record).shared.store(0, std::memory_order_relaxed);
  }
  keep(layout_of(content));
  if (!offer(*sending)) {
    if (!synchronous && content.bytes <= kLargestPayload) {
      // The send is begun anew, as a record with the content.
      let_go(layout_of(content), memory_);
      give_to(free_sendings_, sending);
      sending = nullptr;
      return write_record(member, envelope, content, passes_on) ? SendOutcome::kComplete : SendOutcome::kNoMemory;
    }
    if (offer_attached(*sending)) {
      // as if it were in shared memory
    } else if (set_aside_at_once(*sending)) {
      transfer.state.store(TransferState::kAside, std::memory_order_relaxed);
      trace::count_alone(Counter::kMessagesAsideAtOnce);
    } else if (!begin_stream(*sending)) {
      let_go(layout_of(content), memory_);
      give_to(free_sendings_, sending);
      return SendOutcome::kNoMemory;
    }
  }
  trace::count_alone(Counter::kMessagesLongBytes, content.bytes);
  ChannelWriter::keep(record);
  writers_[member].publish(record, RecordKind::kTransfer);
  if (passes_on) {
    pass_on(record, kLineBytes);
  }
  one_more_in_a_row(member);
  wake(member);
  if (looks > 0 && content.layout == nullptr && content.bytes <= kBroughtBytes) {
    // The receiver begins at the beginning. Content that it will come to later is brought nearer to it meanwhile.
    for (uint64_t ahead = content.bytes / 2; ahead < content.bytes; ahead += kLineBytes) {
      __builtin_prefetch(content.address + ahead, 0);
    }
  }
  while (!finish_if_over(sending)) {
    if (looks-- == 0 || threads_.are_several()) {
      return SendOutcome::kPending;
    }
    relax();
    help_receiver(*sending);
  }
  sending = nullptr;
  return SendOutcome::kComplete;
}

/// Gives back what a send had that is over for both sides.
void Endpoint::release(Sending* sending) {
  release_aside(*sending);
  if (is_on_other_node(sending->member)) {
    release_remote_sending(sending);
  } else {
    ChannelWriter::give_back(sending->record);
  }
  give_to(free_sendings_, sending);
}

/// Copies together with the receiver, if it asks for that, or offers to. Needs no lock.
void Endpoint::help_receiver(Sending& sending) {
  if (is_on_other_node(sending.member)) {
    return;
  }
  Transfer& transfer = transfer_of(sending.record);
  TransferState state = transfer.state.load(std::memory_order_acquire);
  if (!is_taken(state) || !has_sharing(transfer) || sending.helped) {
    sending.seen_taken_ns = 0;
    return;
  }
  if (state == TransferState::kTaken && transfer.attached == 0 && transfer.bytes < kSharedFrom) {
    const uint64_t now = base::monotonic_ns();
    if (sending.seen_taken_ns == 0) {
      sending.seen_taken_ns = now;
    } else if (now - sending.seen_taken_ns > transfer.bytes / kBytesPerNs) {
      transfer.state.compare_exchange_strong(state, TransferState::kHelped, std::memory_order_acq_rel);
    }
    return;
  }
  Sharing& sharing = sharing_of(sending.record);
  if (sharing.shared.load(std::memory_order_acquire) == 0) {
    return;
  }
  const auto* layout = sharing.target_layout != 0 ? memory_.at<Layout>(sharing.target_layout) : nullptr;
  sending.helped = true;
  const Way way = sharing.target_attached != 0 ? Way{Reach::kToOther, pid_of(sending.member)} : Way{};
  // The receiver alone says that it is done, so that it never looks at a record that was used again.
  if (copy_pieces(sharing, sending.content, {sharing.target, sharing.copied_bytes, layout}, way) == Pieces::kLost) {
    report_lost(sending.member);
  }
}

bool Endpoint::finish_if_over(Sending* sending) {
  const TransferState state = transfer_of(sending->record).state.load(std::memory_order_acquire);
  const bool leaves_aside =
      state == TransferState::kAcknowledged ||
      ((state == TransferState::kAside || state == TransferState::kTakenAside) && !sending->synchronous && !sending->waits);
  if (state != TransferState::kDone && !leaves_aside && !sending->cancelled) {
    return false;
  }
  sending->was_cancelled = nullptr;  // nobody will look
  if (sending->held.bytes > 0) {
    pager::drop_hold(sending->held.begin, sending->held.bytes, false);
    held_.drop(sending->held, sending->held_bytes);
  }
  if (sending->streams) {
    end_stream(*sending);
    if (sending->cancelled) {
      release_aside(*sending);  // its receiver may never come to it, and does not look at the ring
    }
    trace::count_alone(Counter::kMessagesStreamed, sending->cancelled ? 0 : 1);
    trace::count_alone(Counter::kMessagesStreamedBytes, sending->cancelled ? 0 : sending->content.bytes);
  }
  if (sending->helped) {
    trace::count_alone(Counter::kMessagesHelped);
    trace::count_alone(Counter::kMessagesHelpedBytes, sending->content.bytes);
  }
  if (sending->copied_aside) {
    trace::count_alone(Counter::kMessagesAside);
    trace::count_alone(Counter::kMessagesAsideBytes, sending->content.bytes);
  }
  let_go(layout_of(sending->content), memory_);
  if (state == TransferState::kDone) {
    release(sending);
  } else {
    left_.push(sending);
  }
  return true;
}

bool Endpoint::try_to_finish(Sending* sending) {
  help_receiver(*sending);
  const Guard guard(*this);
  return finish_if_over(sending);
}

bool Endpoint::cancel(Sending* sending, bool* cancelled) {
  const bool elsewhere = is_on_other_node(sending->member);
  if (elsewhere) {
    copy_aside(sending, false);  // a copied send is complete without its receiver, and is not taken back
  }
  const Guard guard(*this);
  if (elsewhere) {
    // From now on nobody copies it: its receiver says how it ends.
    TransferState state = TransferState::kOffered;
    std::atomic<TransferState>& now = transfer_of(sending->record).state;
    if (now.compare_exchange_strong(state, TransferState::kTaken, std::memory_order_acq_rel) ||
        state == TransferState::kTaken) {
      cancel_remote_sending(sending, cancelled);
    }
    return false;
  }
  for (TransferState state : {TransferState::kOffered, TransferState::kAside, TransferState::kStreaming}) {
    if (transfer_of(sending->record)
            .state.compare_exchange_strong(state, TransferState::kCancelled, std::memory_order_acq_rel)) {
      sending->cancelled = true;
      return true;
    }
  }
  return false;
}

/// Gives back what receivers have done with. Looks at a few in turn: there may be very many.
void Endpoint::reap() {
  constexpr int kLooks = 4;
  for (int look = 0; look < kLooks && !left_.is_empty(); ++look) {
    Sending* sending = left_.pop();
    if (transfer_of(sending->record).state.load(std::memory_order_acquire) == TransferState::kDone) {
      release(sending);
    } else {
      left_.push(sending);
    }
  }
}

bool Endpoint::is_drained() {
  const Guard guard(*this);
  (void)progress_locked();
  return streams_out_ == nullptr && is_drained_between_nodes();
}

}  // namespace headroom::direct
