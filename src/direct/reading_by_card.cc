// Long content between nodes, its receiver's side: the card reads it from the sender's memory in pieces, two at a time. The
// sender's side, and how both go together, is in between_nodes_card.cc.
#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "direct/between_nodes.h"
#include "direct/endpoint.h"
#include "direct/pool.h"
#include "pager/pager.h"
#include "trace/counters.h"

namespace headroom::direct {
namespace {

using trace::Counter;

constexpr uint64_t kPage = arena::kPageBytes;

char* alias_at(uint64_t offset) { return reinterpret_cast<char*>(pager::partition().alias) + offset; }
uint64_t offset_in_page(const void* address) { return reinterpret_cast<uint64_t>(address) % kPage; }

}  // namespace

void Endpoint::begin_to_read_from(int rank, const WireRecord& wire) {
  RemotePeer& peer = between_.peers[rank];
  rdma::PairAddress theirs = {};
  memcpy(&theirs, wire.payload(), sizeof theirs);
  const bool good = wire.first != 0 && between_.card.connect(peer.reads_from_it, theirs);
  peer.reading = good ? Reading::kConnected : Reading::kNever;
  if (!good) {
    between_.card.drop(peer.reads_from_it);
    peer.reads_from_it = nullptr;
    trace::count(Counter::kRdmaConnectionsFailed);
    base::log_debug(base::Part::kDirect, "the network card cannot be connected to that of rank %d", rank);
  }
}

/// A slot of the bounce area; -1: all are in use.
int Endpoint::take_bounce_slot() {
  for (int slot = 0; slot < kBounceSlots; ++slot) {
    if ((between_.bounces_in_use >> slot & 1) == 0) {
      between_.bounces_in_use |= 1U << slot;
      return slot;
    }
  }
  return -1;
}

void Endpoint::give_back_bounce_slot(int slot) {
  if (slot >= 0) {
    between_.bounces_in_use &= ~(1U << slot);
  }
}

/// Posts one read of a piece.
void Endpoint::post_read(NetworkPiece& piece, char* into, uint32_t key, uint64_t from, uint64_t bytes) {
  const Arrival& arrival = *piece.arrival;
  const uint64_t fails_each = base::settings().rdma_fault;
  const bool fails = __builtin_expect(fails_each != 0, 0) && ++between_.reads_posted % fails_each == 0;
  const uint32_t their_key = fails ? ~arrival.ready_key : arrival.ready_key;
  RemotePeer& peer = between_.peers[arrival.rank];
  // A card that refuses may have begun it nevertheless (Soft-RoCE's library does that), into memory that is not held any more.
  if (!between_.card.read(peer.reads_from_it, into, key, from, their_key, bytes, &piece)) {
    base::die("the network card %s refuses to read from rank %d; --rdma off leaves messages to the MPI library",
              between_.card.name(), arrival.rank);
  }
  ++piece.reads;
  ++between_.reads;
  ++peer.reads;
}

/// The same of a piece whose first and last page may be shared with other memory, by a card that wants whole pages: these pages
/// come beside their place, or all do where the content lies differently in its pages on both sides.
void Endpoint::post_whole_pages(NetworkPiece& piece, char* into, uint64_t from) {
  char* const bounce = between_.bounces + static_cast<uint64_t>(piece.slot) * kBounceSlotBytes;
  const uint32_t bounce_key = between_.bounce_keys.local_key;
  const uint64_t before = from % kPage;
  const uint64_t bytes = piece.bytes;
  piece.bounced_from = before;
  if (offset_in_page(into) != before) {
    const uint64_t pages = (before + bytes + kPage - 1) / kPage;
    piece.bounced_head = bytes;
    trace::count(Counter::kRdmaPagesBounced, pages);
    post_read(piece, bounce, bounce_key, from - before, pages * kPage);
    return;
  }
  const uint64_t head = before == 0 ? 0 : std::min(bytes, kPage - before);
  const uint64_t tail = (bytes - head) % kPage;
  const uint64_t middle = bytes - head - tail;
  if (head > 0) {
    piece.bounced_head = head;
    post_read(piece, bounce, bounce_key, from - before, kPage);
  }
  if (middle > 0) {
    post_read(piece, into + head, piece.keys.local_key, from + head, middle);
  }
  if (tail > 0) {
    piece.bounced_tail = tail;
    post_read(piece, bounce + kPage, bounce_key, from + head + middle, kPage);
  }
  trace::count(Counter::kRdmaPagesBounced, (head > 0 ? 1 : 0) + (tail > 0 ? 1 : 0));
}

/// Whether the card takes as many reads more as a piece may need.
bool Endpoint::has_room_to_read(int rank) const {
  constexpr uint64_t kOfPiece = 3;
  return between_.peers[rank].reads + kOfPiece <= rdma::Card::kReadsOfPair &&
         between_.reads + kOfPiece <= rdma::Card::kReadsInAll;
}

/// Begins to read what is ready; false if it cannot be now, or, without `arrival.readable`, never.
bool Endpoint::read_ready(Receiving& receiving, Arrival& arrival, uint64_t wanted) {
  char* const address = receiving.into.address + arrival.ready_first;
  uint64_t bytes = std::min(arrival.ready_count, wanted - arrival.ready_first);
  uint64_t offset = 0;
  if (!has_room_to_read(arrival.rank)) {
    return false;
  }
  if (!pager::find_evictable(address, offset)) {
    arrival.readable = false;
    return false;
  }
  bytes = between_.card.bytes_registered_together(offset, bytes);
  if (between_.card.wants_whole_pages() && offset_in_page(address) != arrival.ready_address % kPage) {
    bytes = std::min(bytes, kBouncedBytes);
  }
  const int slot = between_.card.wants_whole_pages() ? take_bounce_slot() : -1;
  if (between_.card.wants_whole_pages() && slot < 0) {
    return false;
  }
  NetworkPiece* piece = take_from(between_.free_pieces);
  *piece = NetworkPiece{};
  const CardHold hold = hold_for_card(*piece, address, bytes, true, offset);
  if (hold != CardHold::kHeld) {
    give_back_bounce_slot(slot);
    give_to(between_.free_pieces, piece);
    arrival.readable = hold != CardHold::kImpossible;
    return false;
  }
  piece->receiving = &receiving;
  piece->arrival = &arrival;
  piece->first = arrival.ready_first;
  piece->bytes = bytes;
  piece->slot = slot;
  piece->offset = offset;
  prefetch_for_card(*piece, true);
  if (slot >= 0) {
    post_whole_pages(*piece, alias_at(offset), arrival.ready_address);
  } else {
    post_read(*piece, alias_at(offset), piece->keys.local_key, arrival.ready_address, bytes);
  }
  ++arrival.pieces;
  arrival.was_read = true;
  arrival.asked = arrival.ready_first + bytes;
  arrival.ready_first += bytes;
  arrival.ready_address += bytes;
  arrival.ready_count -= bytes;
  return true;
}

/// Once nothing of a broken connection is under way, it goes; the next content from that rank makes another one.
void Endpoint::end_broken_connection(RemotePeer& peer) {
  if (peer.reading != Reading::kBroken || peer.reads > 0) {
    return;
  }
  between_.card.drop(peer.reads_from_it);
  peer.reads_from_it = nullptr;
  peer.reading = ++peer.failures < kMostFailures ? Reading::kNotYet : Reading::kNever;
  trace::count(Counter::kRdmaConnectionsFailed);
}

/// All reads of a piece are over. They end in the order in which they were posted, so the content that has come has no holes.
void Endpoint::finish_read(NetworkPiece& piece) {
  Arrival& arrival = *piece.arrival;
  RemotePeer& peer = between_.peers[arrival.rank];
  arrival.is_broken = arrival.is_broken || piece.failed;
  if (piece.slot >= 0 && !arrival.is_broken) {
    const char* const bounce = between_.bounces + static_cast<uint64_t>(piece.slot) * kBounceSlotBytes;
    memcpy(piece.held.begin, bounce + piece.bounced_from, piece.bounced_head);
    memcpy(piece.held.begin + piece.bytes - piece.bounced_tail, bounce + kPage, piece.bounced_tail);
  }
  give_back_bounce_slot(piece.slot);
  end_card_piece(piece);
  --arrival.pieces;
  if (arrival.is_broken) {
    arrival.readable = false;
    peer.reading = peer.reading == Reading::kConnected ? Reading::kBroken : peer.reading;
    trace::count(Counter::kRdmaFailures);
  } else {
    arrival.came += piece.bytes;
    trace::count(Counter::kRdmaMessagesBytes, piece.bytes);
  }
  end_broken_connection(peer);
  give_to(between_.free_pieces, &piece);
}

bool Endpoint::move_card() {
  if (between_.reads == 0) {
    return false;
  }
  rdma::Completion done[16];
  const int count = between_.card.poll(done, 16);
  for (int at = 0; at < count; ++at) {
    auto& piece = *static_cast<NetworkPiece*>(done[at].what);
    piece.failed = piece.failed || !done[at].good;
    --between_.reads;
    --between_.peers[piece.arrival->rank].reads;
    if (--piece.reads == 0) {
      finish_read(piece);
    }
  }
  return count > 0;
}

void Endpoint::take_ready(int rank, const WireRecord& wire) {
  Arrival* const found = find_arrival(rank, wire.transfer);
  if (found == nullptr) {
    return;
  }
  Arrival& arrival = *found;
  arrival.awaits_ready = false;
  arrival.wants_later = wire.awaits_ready != 0;
  arrival.readable = arrival.readable && (wire.count > 0 || arrival.wants_later);
  arrival.ready_first = wire.first;
  arrival.ready_count = wire.count;
  arrival.ready_address = wire.address;
  arrival.ready_key = wire.key;
}

/// Has the card map where the first piece will go, while the sender does its part. It is not held for longer than that.
void Endpoint::prepare_to_read(const Receiving& receiving, uint64_t wanted) {
  NetworkPiece piece;
  uint64_t offset = 0;
  if (between_.card.scheme() != rdma::Scheme::kOptimal || !pager::find_evictable(receiving.into.address, offset)) {
    return;
  }
  const uint64_t bytes = between_.card.bytes_registered_together(offset, std::min(wanted, network_piece_bytes()));
  if (hold_for_card(piece, receiving.into.address, bytes, true, offset) == CardHold::kHeld) {
    piece.offset = offset;
    prefetch_for_card(piece, true);
    end_card_piece(piece);
  }
}

/// Goes on with what the card reads. `arrival.readable` is false afterwards where the library is to carry the rest.
bool Endpoint::move_by_card(Receiving& receiving, Arrival& arrival, uint64_t wanted) {
  RemotePeer& peer = between_.peers[arrival.rank];
  if (peer.reading == Reading::kNotYet) {
    ask_to_read_from(arrival.rank);
  }
  if (peer.reading == Reading::kNever || receiving.into.layout != nullptr || receiving.into.combine != nullptr) {
    arrival.readable = false;
    return true;
  }
  if (!arrival.is_prepared) {
    arrival.is_prepared = true;
    prepare_to_read(receiving, wanted);
  }
  if (peer.reading != Reading::kConnected) {
    return false;
  }
  bool moved = false;
  while (arrival.readable && arrival.ready_count > 0 && arrival.ready_first < wanted && arrival.pieces < kPiecesAtOnce &&
         read_ready(receiving, arrival, wanted)) {
    moved = true;
  }
  const bool wants = arrival.readable && !arrival.awaits_ready && arrival.ready_count == 0 && arrival.asked < wanted &&
                     (!arrival.wants_later || arrival.pieces == 0);
  if (wants) {
    OutgoingRecord* const out = make_record(arrival.rank, WireKind::kWant, 0);
    out->record.transfer = arrival.transfer;
    out->record.first = arrival.asked;
    out->record.count = wanted - arrival.asked;
    out->record.address = arrival.came;
    post_record(out);
    arrival.awaits_ready = true;
    moved = true;
  }
  return moved;
}

}  // namespace headroom::direct
