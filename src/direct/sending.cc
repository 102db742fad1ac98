// The sender's side; see endpoint.h and transfer.h.
#include <cstring>

#include "direct/copy.h"
#include "direct/endpoint.h"
#include "direct/pool.h"
#include "pager/pager.h"
#include "sched/preemption.h"
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
constexpr uint64_t kStreamStep = 128 << 10;
static_assert(kSmallRingBytes >= 2 * kStreamStep);  // one is written while the other is read
/// Rings of full size have together at most this part of what may be held: message memory cannot leave, either.
constexpr uint64_t kRingPart = 4;
/// What is copied aside while memory is short, as long as all of it is no more than what may be held; other content streams.
constexpr uint64_t kLargestAsideShort = 1 << 20;
/// What may be copied aside of shorter content while memory is enough: this part of the rank's share, and no more than so much.
constexpr int64_t kAsidePart = 8;
constexpr int64_t kMostAside = 64 << 20;
/// Who has waited so long for room is copied aside without it: its receiver may wait for what comes next.
constexpr uint64_t kDeniedNs = 100'000'000;

Layout* layout_of(const Content& content) { return const_cast<Layout*>(content.layout); }

void gather(char* to, const Content& content) {
  Walk from(content);
  Walk into({to, content.bytes, nullptr});
  copy(into, from, content.bytes);
}

}  // namespace

[[gnu::always_inline]] inline ChannelWriter* Endpoint::writer_to(int member) {
  ChannelWriter& writer = writers_[member];
  if (__builtin_expect(!writer.is_open(), 0)) {
    if (!writer.open(memory_)) {
      return nullptr;
    }
    own_root().channel_to[member].store(writer.first_chunk(), std::memory_order_release);
    writing_[writing_count_++] = member;
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
  if (pager::is_armed() && held_.bytes() + (held_.has(span) ? 0 : held_bytes) > pager::largest_optional_hold()) {
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

/// How much may be copied aside in all.
uint64_t Endpoint::most_aside() const {
  if (pager::is_armed()) {
    return pager::largest_hold();
  }
  const node::Ledger& ledger = *session_->ledger;
  const int64_t alive = ledger.alive.load(std::memory_order_relaxed);
  const int64_t part = ledger.budget / (alive > 0 ? alive : 1) / kAsidePart;
  return static_cast<uint64_t>(part < kMostAside ? part : kMostAside);
}

/// Whether content of so many bytes may be copied aside, which takes `more` memory. What is as short as what every library
/// buffers always may, and what is so long that it is reserved in the budget may as far as the budget has room.
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
  // What streams while memory is short does so although nobody may wait: it is its sender's to see to that.
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

/// The same of content that cannot stay where it is. Where there is no room, what needs no more than a ring is copied all the
/// same, and its sender waits.
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

bool Endpoint::begin_stream(Sending& sending) {
  Transfer& transfer = transfer_of(sending.record);
  const bool are_many = aside_bytes_.load(std::memory_order_relaxed) + kRingBytes > most_aside() / kRingPart;
  const uint64_t bytes = are_many ? kSmallRingBytes : kRingBytes;
  void* ring = has_sharing(transfer) ? memory_.allocate(bytes) : nullptr;
  if (ring == nullptr) {
    return false;
  }
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
    const uint64_t step = left < kStreamStep ? left : kStreamStep;
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

SendOutcome Endpoint::send(int member, const Envelope& envelope, const Content& content, SendKind kind, uint64_t looks,
                           Sending*& sending) {
  const Guard guard(*this);
  const bool synchronous = kind == SendKind::kSynchronous;
  const bool collective = kind == SendKind::kCollective || kind == SendKind::kBroadcast;
  trace::count_alone(collective ? Counter::kMessagesCollective : Counter::kMessagesDirect);
  trace::count_alone(collective ? Counter::kMessagesCollectiveBytes : Counter::kMessagesDirectBytes, content.bytes);
  // Where each process has a core of its own, and the receiver waits for this message and not for several.
  const bool passes_on = can_pass_on_ && !is_in_a_row(member) && !sched::waiters_may_sleep();
  const uint64_t most_inline = kind == SendKind::kBroadcast && !pager::is_armed() ? kBroadcastInlineBytes
                               : collective                                       ? kCollectiveInlineBytes
                               : passes_on                                        ? kPassedOnInlineBytes
                                                                                  : kInlineBytes;
  if (content.bytes <= most_inline && !synchronous) {
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
      // What was begun is begun anew, as a record with the content.
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
    // The receiver begins at the beginning. What it will come to later is brought nearer to it meanwhile.
    for (uint64_t ahead = content.bytes / 2; ahead < content.bytes; ahead += kLineBytes) {
      __builtin_prefetch(content.address + ahead, 0);
    }
  }
  while (!is_over(sending)) {
    if (looks-- == 0 || threads_.are_several()) {
      return SendOutcome::kPending;
    }
    relax();
    help_receiver(*sending);
  }
  sending = nullptr;
  return SendOutcome::kComplete;
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

/// Gives back what a send had that is over for both sides.
void Endpoint::release(Sending* sending) {
  release_aside(*sending);
  ChannelWriter::give_back(sending->record);
  give_to(free_sendings_, sending);
}

/// Copies together with the receiver, if it asks for that, or offers to. Needs no lock.
void Endpoint::help_receiver(Sending& sending) {
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

bool Endpoint::is_over(Sending* sending) {
  const TransferState state = transfer_of(sending->record).state.load(std::memory_order_acquire);
  const bool leaves_aside =
      state == TransferState::kAcknowledged ||
      ((state == TransferState::kAside || state == TransferState::kTakenAside) && !sending->synchronous && !sending->waits);
  if (state != TransferState::kDone && !leaves_aside && !sending->cancelled) {
    return false;
  }
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

bool Endpoint::is_finished(Sending* sending) {
  help_receiver(*sending);
  const Guard guard(*this);
  return is_over(sending);
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

bool Endpoint::cancel(Sending* sending) {
  const Guard guard(*this);
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
  return streams_out_ == nullptr;
}

}  // namespace headroom::direct
