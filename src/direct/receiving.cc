// The receiver's side; see endpoint.h and transfer.h.

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "direct/copy.h"
#include "direct/endpoint.h"
#include "direct/peer_memory.h"
#include "pager/pager.h"
#include "sched/scheduler.h"
#include "trace/counters.h"

namespace headroom::direct {
namespace {

using trace::Counter;

constexpr uint64_t kPrefetchBytes = 1024;
constexpr uint64_t kExpectedFrom = 16 << 10;  // shorter content is not worth a look at whether its pages are mapped
constexpr int kLooks = 200;
constexpr uint8_t kMostDelay = 16;
constexpr int kLooksBeforePreparing = 4;
constexpr uint64_t kPreparedBytes = 16 << 10;
constexpr int kLooksOfMany = 10;  // so many between yields where the sender may be waiting for this processor

/// A look at a line takes it from its writer, which must get it back to write; so a receiver looks first when a message is
/// likely to be there: this long after it began, in pauses, according to what was when it looked.
uint8_t next_delay(uint8_t delay, bool was_there) {
  if (was_there) {
    return static_cast<uint8_t>(delay == 0 ? 0 : delay - 1 - delay / 8);
  }
  return delay < kMostDelay ? static_cast<uint8_t>(delay + 1) : delay;
}

}  // namespace

void expect_overwriting(const Content& to) {
  if (to.layout == nullptr && to.combine == nullptr) {
    pager::will_fill(to.address, to.bytes);
  }
}

void expect_overwriting(const Content& to, const Content& from) {
  Content filled = to;
  filled.bytes = std::min(to.bytes, from.bytes);
  const Span source = span_of(from);
  if (filled.address + filled.bytes <= source.begin || source.begin + source.bytes <= filled.address) {
    expect_overwriting(filled);
  }
}

/// Spins until `done`; the other side is at work, unless it has no processor, or has died over it.
template <typename Done>
void Endpoint::wait_for_other_side(int member, Done done) {
  constexpr uint32_t kSpins = 1000;
  const node::Member& other = session_->ledger->members[member];
  for (uint32_t round = 0; !done(); ++round) {
    if (round < kSpins) {
      relax();
      continue;
    }
    (void)base::system_call(SYS_sched_yield);
    if (node::state_of(other) == node::MemberState::kDied && !done()) {
      report_lost(member);
    }
  }
}

/// Makes the message this process's to receive; false if its sender has taken it back: then it is gone.
bool Endpoint::claim(RecordHeader* record, int member) {
  if (ChannelReader::kind_of(*record) != RecordKind::kTransfer) {
    return true;
  }
  Transfer& transfer = transfer_of(record);
  TransferState state = transfer.state.load(std::memory_order_acquire);
  if (state == TransferState::kOffered && transfer.layout == 0 && transfer.attached == 0) {
    // The content is on its way while the transfer is claimed.
    for (uint64_t ahead = 0; ahead < transfer.bytes && ahead < kPrefetchBytes; ahead += kLineBytes) {
      __builtin_prefetch(transfer.address + ahead, 0);
    }
  }
  for (;;) {
    switch (state) {
      case TransferState::kOffered:
      case TransferState::kAside:
      case TransferState::kMatched:
      case TransferState::kStreaming: {
        const TransferState taken = state == TransferState::kStreaming ? TransferState::kStreamTaken
                                    : state == TransferState::kAside   ? TransferState::kTakenAside
                                                                       : TransferState::kTaken;
        if (transfer.state.compare_exchange_weak(state, taken, std::memory_order_acq_rel)) {
          return true;
        }
        break;
      }
      case TransferState::kCopyingAside:
      case TransferState::kCopyingMatched: {
        const TransferState copying = state;
        wait_for_other_side(member, [&] { return (state = transfer.state.load(std::memory_order_acquire)) != copying; });
        break;
      }
      case TransferState::kCancelled:
        transfer.state.store(TransferState::kDone, std::memory_order_release);
        ChannelReader::give_back(record);
        wake(member);
        return false;
      default:
        return true;
    }
  }
}

/// The message that was claimed is left to a later receive.
void Endpoint::unclaim(RecordHeader* record) {
  if (ChannelReader::kind_of(*record) == RecordKind::kTransfer) {
    Transfer& transfer = transfer_of(record);
    const TransferState state = transfer.state.load(std::memory_order_relaxed);
    if (is_taken(state)) {
      transfer.state.store(TransferState::kOffered, std::memory_order_release);
    } else if (state == TransferState::kTakenAside) {
      transfer.state.store(TransferState::kAside, std::memory_order_release);
    } else if (state == TransferState::kStreamTaken) {
      transfer.state.store(TransferState::kStreaming, std::memory_order_release);
    }
  }
}

/// Copies together with the sender, in pieces, all but the `done` first, which are copied. False if the sender cannot reach
/// where they go.
bool Endpoint::share_pieces(RecordHeader* record, const Content& from, const Content& to, int member, const Way& way,
                            uint64_t piece_bytes, uint64_t done) {
  const Span span = span_of(to);
  uint64_t offset = 0;
  // Among several threads, all that are at it together hold no more than one may.
  const uint64_t filled = pager::bytes_of_hold(span.begin, span.bytes);
  const uint64_t others_fill = filled_bytes_.fetch_add(filled, std::memory_order_relaxed);
  const bool held = (!pager::is_armed() || others_fill + filled <= pager::largest_optional_hold()) &&
                    pager::hold_for_peer(span.begin, span.bytes, true, offset);
  if (!held) {
    filled_bytes_.fetch_sub(filled, std::memory_order_relaxed);
  }
  if (!held && (member == session_->index || pager::overlaps(span.begin, span.bytes) || !suits_attaching(to) ||
                !root_of(member).attaches_to[session_->index].load(std::memory_order_acquire))) {
    return false;
  }
  Sharing& sharing = sharing_of(record);
  sharing.target_attached = held ? 0 : 1;
  sharing.target =
      held ? reinterpret_cast<char*>(arena::partition_base(session_->index) + offset) + (to.address - span.begin) : to.address;
  sharing.target_layout = to.layout != nullptr ? memory_.offset_of(to.layout) : 0;
  sharing.copied_bytes = to.bytes;
  sharing.piece_bytes = piece_bytes;
  sharing.pieces = (to.bytes + piece_bytes - 1) / piece_bytes;
  sharing.next_piece.store(done, std::memory_order_relaxed);
  sharing.done_pieces.store(done, std::memory_order_relaxed);
  sharing.shared.store(1, std::memory_order_release);
  const uint64_t pieces = sharing.pieces;
  const Pieces end = copy_pieces(sharing, from, to, way);
  if (end == Pieces::kLost) {
    report_lost(member);
  }
  if (end == Pieces::kOthersGoOn) {
    wait_for_other_side(member, [&] { return sharing.done_pieces.load(std::memory_order_acquire) == pieces; });
  }
  if (held) {
    pager::drop_hold(span.begin, span.bytes, true);
    filled_bytes_.fetch_sub(filled, std::memory_order_relaxed);
  }
  return true;
}

/// Long content: both copy from its beginning on. False if the sender cannot.
bool Endpoint::fetch_together(RecordHeader* record, const Content& from, const Content& to, int member, const Way& way) {
  const uint64_t half = (to.bytes / 2 + arena::kPageBytes - 1) & ~(arena::kPageBytes - 1);
  return share_pieces(record, from, to, member, way, std::min(half, kPieceBytes), 0);
}

/// Content that is not so long: if it is in the caches it is copied before another could begin; if it is not, a second core
/// has as much bandwidth as the first. The sender offers to help if it has waited (help_receiver()).
void Endpoint::fetch_with_help(RecordHeader* record, const Content& from, const Content& to, int member) {
  constexpr uint64_t kParts = 8;
  const uint64_t piece = (to.bytes / kParts + arena::kPageBytes - 1) & ~(arena::kPageBytes - 1);
  const std::atomic<TransferState>& state = transfer_of(record).state;
  Walk reader(from);
  Walk writer(to);
  bool asks = true;
  for (uint64_t done = 0; done < to.bytes;) {
    const uint64_t left = to.bytes - done;
    if (asks && left * 2 >= to.bytes && state.load(std::memory_order_relaxed) == TransferState::kHelped) {
      if (share_pieces(record, from, to, member, {}, piece, done / piece)) {
        return;
      }
      asks = false;
    }
    const uint64_t step = std::min(left, piece);
    (void)copy(writer, reader, step);
    done += step;
  }
}

/// Folds content into what is there.
void Endpoint::combine(const Content& from, const Content& to, int member, const Way& way) {
  if (way.reach == Reach::kHere) {
    to.combine->apply(*to.combine, from.address, to.address, to.bytes);
    return;
  }
  void* piece = memory_.allocate(to.bytes);
  if (piece == nullptr) {
    memory_.die_without("a reduction");
  }
  Walk reader(from);
  Walk writer({static_cast<char*>(piece), to.bytes, nullptr});
  if (!copy(writer, reader, to.bytes, way)) {
    report_lost(member);
  }
  to.combine->apply(*to.combine, piece, to.address, to.bytes);
  memory_.release(piece, to.bytes, !pager::is_armed());
}

/// Copies the content of a message that is claimed and does not stream, and gives its record back.
void Endpoint::fetch(RecordHeader* record, const Content& into, int member) {
  fetch_content(record, into, member);
  end_fetch(record, into, member);
}

/// The first half, which needs no lock.
void Endpoint::fetch_content(RecordHeader* record, const Content& into, int member) {
  Transfer& transfer = transfer_of(record);
  const uint64_t bytes = std::min(transfer.bytes, into.bytes);
  const TransferState state = transfer.state.load(std::memory_order_relaxed);
  const bool acknowledged = state == TransferState::kAcknowledged;
  const bool aside = acknowledged || state == TransferState::kTakenAside;
  const Content from = {aside ? memory_.at<char>(transfer.aside) : transfer.address, bytes,
                        aside || transfer.layout == 0 ? nullptr : memory_.at<Layout>(transfer.layout)};
  const Content to = {into.address, bytes, into.layout, into.combine};
  const bool attached = !aside && transfer.attached != 0;
  expect_overwriting(to);
  const Way way = attached ? Way{Reach::kFromOther, pid_of(member)} : Way{};
  const bool is_plain = from.layout == nullptr && to.layout == nullptr;
  if (to.combine != nullptr) {
    combine(from, to, member, way);
  } else if (!aside && bytes >= (attached ? kAttachSharedFrom : kSharedFrom) && fetch_together(record, from, to, member, way)) {
    // both sides did
  } else if (!attached && is_plain && (aside || bytes < kHelpedFrom)) {
    if (bytes >= kExpectedFrom) {
      expect_use(from.address, bytes);
    }
    copy_bytes(to.address, from.address, bytes);
  } else if (!attached && !aside && bytes >= kHelpedFrom && bytes < kSharedFrom) {
    if (is_plain) {
      expect_use(from.address, bytes);
    }
    fetch_with_help(record, from, to, member);
  } else {
    Walk reader(from);
    Walk writer(to);
    if (!copy(writer, reader, bytes, way)) {
      report_lost(member);
    }
  }
  if (acknowledged && memory_.is_own(transfer.aside)) {
    memory_.release(memory_.at<char>(transfer.aside), transfer.bytes);
    node::release_of_message(*session_->ledger, *session_->self, static_cast<int64_t>(transfer.bytes));
  }
}

/// The second half, with the lock: counts the copy and gives the record back.
void Endpoint::end_fetch(RecordHeader* record, const Content& into, int member) {
  const Transfer& transfer = transfer_of(record);
  const TransferState state = transfer.state.load(std::memory_order_relaxed);
  if (state != TransferState::kAcknowledged && state != TransferState::kTakenAside) {
    const uint64_t bytes = std::min(transfer.bytes, into.bytes);
    trace::count_alone(Counter::kMessagesFetched);
    trace::count_alone(Counter::kMessagesFetchedBytes, bytes);
    if (transfer.attached != 0) {
      trace::count_alone(Counter::kMessagesAttached);
      trace::count_alone(Counter::kMessagesAttachedBytes, bytes);
    }
    if ((state == TransferState::kHelped || bytes >= kSharedFrom || (transfer.attached != 0 && has_sharing(transfer))) &&
        sharing_of(record).shared.load(std::memory_order_relaxed) != 0) {
      trace::count_alone(Counter::kMessagesShared);
      trace::count_alone(Counter::kMessagesSharedBytes, bytes);
    }
  }
  // release: the sender may write its memory again when it sees this.
  transfer_of(record).state.store(TransferState::kDone, std::memory_order_release);
  ChannelReader::give_back(record);
  wake(member);
}

/// Gives `receiving` the message of `record`, which is claimed.
void Endpoint::deliver(Receiving& receiving, RecordHeader* record, int member, uint64_t bytes) {
  receiving.source = record->source;
  receiving.tag = record->tag;
  receiving.bytes = bytes;
  receiving.truncated = bytes > receiving.into.bytes;
  if (ChannelReader::kind_of(*record) == RecordKind::kTransfer) {
    if (transfer_of(record).state.load(std::memory_order_acquire) == TransferState::kStreamTaken) {
      receiving.record = record;
      receiving.member = member;
      receiving.streamed = 0;
      expect_overwriting(
          {receiving.into.address, std::min(bytes, receiving.into.bytes), receiving.into.layout, receiving.into.combine});
      receiving.next = streams_in_;
      streams_in_ = &receiving;
      return;
    }
    if (__builtin_expect(threads_.are_several(), 0) && leaves(receiving, transfer_of(record))) {
      leave(receiving, record, member);
      return;
    }
    fetch(record, receiving.into, member);
    receiving.complete.store(true, std::memory_order_release);
    return;
  }
  take_payload(record, bytes, receiving.into);
  receiving.complete.store(true, std::memory_order_release);
}

/// Copies content that lies in the record, and gives the record back.
void Endpoint::take_payload(RecordHeader* record, uint64_t bytes, const Content& to) {
  const uint64_t copied = std::min(bytes, to.bytes);
  if (to.combine != nullptr) {
    alignas(kLineBytes) char aligned[kLargestPayload];  // for operations on what must be aligned to 16 bytes
    memcpy(aligned, record->payload(), copied);
    to.combine->apply(*to.combine, aligned, to.address, copied);
  } else if (to.layout == nullptr) {
    copy_short(to.address, record->payload(), copied);
  } else {
    Walk from({record->payload(), copied, nullptr});
    Walk into({to.address, copied, to.layout});
    copy(into, from, copied);
  }
  ChannelReader::give_back(record);
}

/// Looks for a message where it is most likely: next in the channel from `member`, asked for by nobody else.
bool Endpoint::receive_next(int member, const Envelope& wanted, const Content& into, NextMessage& got) {
  const bool many = sched::waiters_may_sleep();
  if (threads_.are_several()) {
    return false;
  }
  const Guard guard(*this);
  if (threads_.are_several() || is_away() || posted_.count() != 0 || unexpected_.count() != 0) {
    return false;
  }
  ChannelReader& reader = readers_[member];
  if (!reader.is_open()) {
    return false;
  }
  uint8_t& delay = delay_[member];
  for (uint8_t round = 0; round < delay; ++round) {
    relax();
  }
  for (int look = 0; look < kLooks; ++look) {
    RecordHeader* record = reader.peek();
    if (record == nullptr) {
      if (look == kLooksBeforePreparing && into.layout == nullptr && into.bytes <= kPreparedBytes) {
        // Time to fetch the lines that will be written.
        for (uint64_t ahead = 0; ahead < into.bytes; ahead += kLineBytes) {
          prefetch_to_write(into.address + ahead);
        }
      }
      if (many && look % kLooksOfMany == kLooksOfMany - 1) {
        (void)base::system_call(SYS_sched_yield);
      }
      relax();  // a sender that is far away gets the line back less often
      continue;
    }
    delay = next_delay(delay, look == 0);
    if (record->context != wanted.context || record->source != wanted.source ||
        (record->tag != wanted.tag && wanted.tag != kAny)) {
      return false;
    }
    if (ChannelReader::kind_of(*record) == RecordKind::kPayload) {
      got = {record->bytes, record->tag};
      if (got.bytes > into.bytes) {
        return false;
      }
      advance(reader, member, record);
      take_payload(record, got.bytes, into);
      return true;
    }
    const Transfer& transfer = transfer_of(record);
    got = {transfer.bytes, record->tag};
    const TransferState state = transfer.state.load(std::memory_order_acquire);
    if (got.bytes > into.bytes || state == TransferState::kStreaming) {
      return false;
    }
    advance(reader, member, record);
    if (claim(record, member)) {
      fetch(record, into, member);
      return true;
    }
  }
  return false;
}

}  // namespace headroom::direct
