// Records between nodes: how they go out in order and no more than their receiver takes, and what each that comes means; see
// between_nodes.h.
#include "direct/between_nodes.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "direct/endpoint.h"
#include "direct/pool.h"
#include "pager/pager.h"
#include "trace/counters.h"

namespace headroom::direct {
namespace {

using trace::Counter;

/// Looks that nobody waits for: one in so many goes to the network, which costs more than a look at all channels.
constexpr uint32_t kLooksBetween = 64;
/// So many records of other nodes are taken in one look.
constexpr int kRemoteRecordsAtOnce = 64;

}  // namespace

void Endpoint::begin_between_nodes(const NetworkFunctions& network, int ranks) {
  between_.network = network;
  between_.peers = static_cast<RemotePeer*>(base::reserve_memory(static_cast<uint64_t>(ranks) * sizeof(RemotePeer)));
  if (between_.peers == nullptr) {
    base::die("no memory is left for messages (see `ulimit -v`)");
  }
  between_.on = true;
}

void* Endpoint::allocate_for_network(uint64_t bytes) { return memory_.allocate(bytes); }

/// A record to `rank`, to be filled in and given to post_record().
OutgoingRecord* Endpoint::make_record(int rank, WireKind kind, uint64_t payload) {
  const uint64_t bytes = sizeof(OutgoingRecord) + payload;
  auto* out = static_cast<OutgoingRecord*>(memory_.allocate(bytes));
  if (out == nullptr) {
    memory_.die_without("a message to another node");
  }
  *out = {};
  out->rank = rank;
  out->bytes = static_cast<uint32_t>(sizeof(WireRecord) + payload);
  out->memory_bytes = bytes;
  out->record.kind = kind;
  return out;
}

void Endpoint::fly(OutgoingRecord* out) {
  RemotePeer& peer = between_.peers[out->rank];
  out->record.taken = peer.we_took;
  peer.we_told = peer.we_took;
  peer.was_sent_to = true;
  out->transfer = between_.network.send_record(out->rank, &out->record, out->bytes);
  out->next = between_.flying;
  between_.flying = out;
}

/// Sends it now if its receiver keeps up, else later, in order.
void Endpoint::post_record(OutgoingRecord* out) {
  RemotePeer& peer = between_.peers[out->rank];
  if (peer.first == nullptr && peer.sent - peer.they_took < kWindow) {
    peer.sent += units_of(out->bytes);
    fly(out);
    return;
  }
  out->next = nullptr;
  (peer.last != nullptr ? peer.last->next : peer.first) = out;
  peer.last = out;
  ++between_.queued;
  between_.queued_bytes += out->memory_bytes;
  trace::count(Counter::kBetweenRecordsQueued);
}

/// Sends the records that have waited for `peer` to take those before them.
void Endpoint::send_queued(RemotePeer& peer) {
  while (peer.first != nullptr && peer.sent - peer.they_took < kWindow) {
    OutgoingRecord* const out = peer.first;
    peer.first = out->next;
    peer.last = peer.first != nullptr ? peer.last : nullptr;
    --between_.queued;
    between_.queued_bytes -= out->memory_bytes;
    peer.sent += units_of(out->bytes);
    fly(out);
  }
}

/// Tells a rank that gets no other record how much was taken of it.
void Endpoint::tell_taken(int rank) {
  const RemotePeer& peer = between_.peers[rank];
  if (peer.we_took - peer.we_told >= kWindow / 2 && !between_.ending) {
    fly(make_record(rank, WireKind::kTaken, 0));
  }
}

bool Endpoint::land_records() {
  bool landed = false;
  for (OutgoingRecord** link = &between_.flying; *link != nullptr;) {
    OutgoingRecord* const out = *link;
    if (!between_.network.test(out->transfer)) {
      link = &out->next;
      continue;
    }
    *link = out->next;
    memory_.release(out, out->memory_bytes, true);
    landed = true;
  }
  return landed;
}

SendOutcome Endpoint::send_to_other_node(int member, const Envelope& envelope, const Content& content, SendKind kind,
                                         Sending*& sending) {
  const bool synchronous = kind == SendKind::kSynchronous;
  const int rank = rank_of_member(member);
  trace::count(Counter::kMessagesBetween);
  trace::count(Counter::kMessagesBetweenBytes, content.bytes);
  // Records that wait here for a receiver that does not keep up are bounded like content that is copied aside.
  const bool waits = between_.peers[rank].first != nullptr;
  const uint64_t largest = pager::is_armed() ? kLargestEagerShort : kLargestEager;
  if (!synchronous && content.bytes <= largest && (!waits || between_.queued_bytes < most_aside())) {
    OutgoingRecord* const out = make_record(rank, WireKind::kEager, content.bytes);
    out->record.tag = envelope.tag;
    out->record.context = envelope.context;
    out->record.source = envelope.source;
    out->record.bytes = content.bytes;
    gather(out->record.payload(), content);
    post_record(out);
    return SendOutcome::kComplete;
  }
  sending = begin_remote_sending(member, content, synchronous);
  if (sending == nullptr) {
    return SendOutcome::kNoMemory;
  }
  OutgoingRecord* const out = make_record(rank, WireKind::kOffer, 0);
  out->record.tag = envelope.tag;
  out->record.context = envelope.context;
  out->record.source = envelope.source;
  out->record.bytes = content.bytes;
  out->record.transfer = reinterpret_cast<uint64_t>(sending);
  if (kind == SendKind::kBuffered || !(is_readable(content) && offer_to_card(*sending, out))) {
    post_record(out);
  }
  return SendOutcome::kPending;
}

/// Puts a message from another node into this process's own channel.
void Endpoint::take_remote_message(int rank, const WireRecord& wire) {
  const bool eager = wire.kind == WireKind::kEager;
  const bool fits = eager && wire.bytes <= kLargestPayload;
  const uint64_t payload = fits ? wire.bytes : sizeof(Transfer);
  RecordHeader* const record = begin_own_record({wire.context, wire.source, wire.tag}, payload, !fits);
  if (record == nullptr) {
    memory_.die_without("a message of another node");
  }
  if (fits) {
    memcpy(record->payload(), wire.payload(), payload);
    writers_[session_->index].publish(record, RecordKind::kPayload);
    return;
  }
  Transfer& transfer = *new (record->payload()) Transfer{};
  transfer.bytes = wire.bytes;
  if (eager) {
    // As content that the helper has copied aside (away.cc): the receiver gives the copy back.
    void* const aside = memory_.allocate(wire.bytes);
    if (aside == nullptr) {
      memory_.die_without("a message of another node");
    }
    memcpy(aside, wire.payload(), wire.bytes);
    node::take_for_message(*session_->ledger, *session_->self, static_cast<int64_t>(wire.bytes));
    transfer.aside = memory_.offset_of(aside);
    transfer.state.store(TransferState::kAcknowledged, std::memory_order_relaxed);
  } else {
    transfer.attached = kFromOtherNode;
    transfer.address = reinterpret_cast<char*>(begin_arrival(rank, wire, record));
    transfer.state.store(TransferState::kStreaming, std::memory_order_relaxed);
  }
  writers_[session_->index].publish(record, RecordKind::kTransfer);
}

void Endpoint::take_wire_record(int rank, const WireRecord& wire, uint64_t bytes) {
  RemotePeer& peer = between_.peers[rank];
  peer.they_took = wire.taken;
  if (wire.kind != WireKind::kTaken) {
    peer.we_took += units_of(bytes);
  }
  switch (wire.kind) {
    case WireKind::kEager:
    case WireKind::kOffer:
      take_remote_message(rank, wire);
      break;
    case WireKind::kAsk:
      send_piece(rank, wire);
      break;
    case WireKind::kWant:
      want_piece(wire);
      break;
    case WireKind::kReady:
      take_ready(rank, wire);
      break;
    case WireKind::kConnect:
      let_read(rank, wire);
      break;
    case WireKind::kConnected:
      begin_to_read_from(rank, wire);
      break;
    case WireKind::kEnd:
      end_remote_sending(reinterpret_cast<Sending*>(wire.transfer), wire.first != 0);
      break;
    case WireKind::kCancel:
      cancel_arrival(rank, wire.transfer);
      break;
    case WireKind::kBye:
      ++between_.byes;
      break;
    case WireKind::kTaken:
      break;
  }
  send_queued(peer);
  tell_taken(rank);
}

/// Whether this process waits for something of the network's.
bool Endpoint::expects_network() const {
  return between_.on && (between_.expected > 0 || between_.sendings > 0 || between_.flying != nullptr || between_.queued > 0 ||
                         between_.pieces != nullptr || between_.arrivals != nullptr);
}

/// Looks at the network: at every call if it is waited for, else now and then. Not in the helper's thread, which may not call
/// the library.
bool Endpoint::move_between_nodes(bool surely) {
  if (helping_ || !(surely || expects_network() || ++between_.looks % kLooksBetween == 0)) {
    return false;
  }
  bool came = false;
  for (int taken = 0; taken < kRemoteRecordsAtOnce; ++taken) {
    int rank = 0;
    uint64_t bytes = 0;
    const void* const record = between_.network.next_record(rank, bytes);
    if (record == nullptr) {
      break;
    }
    take_wire_record(rank, *static_cast<const WireRecord*>(record), bytes);
    came = true;
  }
  came = move_card() || came;
  came = move_pieces() || came;
  came = land_records() || came;
  return came;
}

bool Endpoint::is_drained_between_nodes() {
  return between_.sendings == 0 && between_.flying == nullptr && between_.queued == 0 && between_.pieces == nullptr;
}

bool Endpoint::say_bye_to(int rank) {
  const Guard guard(*this);
  between_.ending = true;
  if (!between_.peers[rank].was_sent_to) {
    return false;
  }
  fly(make_record(rank, WireKind::kBye, 0));
  return true;
}

int Endpoint::byes_come() {
  const Guard guard(*this);
  (void)move_between_nodes(true);
  return between_.byes;
}

}  // namespace headroom::direct
