// Long content between nodes that the receiver's network card reads from the sender's memory; see between_nodes.h and
// rdma/card.h.
//
//   sender                                                           receiver
//   holds the first piece, OFFER ────────────────────────────────►   its own channel ──► matching
//   asks its card to map it, READY{address, key} ────────────────►   asks its card to map its own piece meanwhile
//                                     ◄═══════════ RDMA READ ═══     holds its own piece
//                                     ◄── WANT the next piece ──     while the card reads
//   lets go of what has come, holds and maps the next, READY ────►
//                                     ◄── END ──────────────────     the sender lets go of all
//
// Memory that the card has mapped already needs no asking, and then the OFFER says where the first piece is.
//
// Both sides' memory is held while the card may use it, so nothing is pinned and nothing can be taken away under the card;
// mapping its pages is a matter of speed alone. The sender's memory may be read at any moment from the OFFER on, so such
// content is not copied aside. Queue pairs are made when a rank first reads from another (CONNECT, CONNECTED). The library
// carries in pieces the content that the card cannot read, or fails to read.
#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/settings.h"
#include "direct/between_nodes.h"
#include "direct/endpoint.h"
#include "direct/pool.h"
#include "pager/pager.h"
#include "trace/counters.h"

namespace headroom::direct {
namespace {

using rdma::Scheme;
using trace::Counter;

constexpr uint64_t kPage = arena::kPageBytes;

Scheme scheme_of(base::RdmaChoice choice) {
  switch (choice) {
    case base::RdmaChoice::kPinned:
      return Scheme::kPinned;
    case base::RdmaChoice::kNative:
      return Scheme::kNative;
    case base::RdmaChoice::kEnhanced:
      return Scheme::kEnhanced;
    default:
      return Scheme::kOptimal;
  }
}

char* alias_at(uint64_t offset) { return reinterpret_cast<char*>(pager::partition().alias) + offset; }
uint64_t offset_in_page(const void* address) { return reinterpret_cast<uint64_t>(address) % kPage; }

}  // namespace

/// Opens this node's card, if it has one and it is wanted. Ends the process where it was asked for by name and cannot be had.
bool Endpoint::open_card() {
  const base::RdmaChoice choice = base::settings().rdma;
  if (choice == base::RdmaChoice::kOff) {
    return false;
  }
  const arena::Partition& partition = pager::partition();
  auto* const scratch = static_cast<char*>(memory_.allocate(rdma::Card::kScratchBytes));
  const bool is_open =
      scratch != nullptr && between_.card.open(
                                scheme_of(choice), alias_at(0), partition.limit.load(std::memory_order_relaxed),
                                [](uint64_t offset) { return arena::punches_at(pager::partition(), offset); }, scratch);
  if (scratch != nullptr) {
    memory_.release(scratch, rdma::Card::kScratchBytes, true);
  }
  if (is_open && between_.card.wants_whole_pages() && !make_bounces()) {
    base::die("no memory is left for messages that a network card reads (see `ulimit -v`)");
  }
  const char* const why = scratch != nullptr ? between_.card.why() : "no message memory is left";
  if (!is_open && choice != base::RdmaChoice::kAuto) {
    base::die("--rdma: %s; --rdma auto leaves messages between nodes to the MPI library then", why);
  }
  base::log_debug(base::Part::kDirect, "network card: %s%s", is_open ? between_.card.name() : why,
                  is_open && between_.card.wants_whole_pages() ? ", whose paging wants whole pages" : "");
  return is_open;
}

bool Endpoint::make_bounces() {
  constexpr uint64_t kBytes = kBounceSlots * kBounceSlotBytes;
  between_.bounces = static_cast<char*>(memory_.allocate(kBytes));
  if (between_.bounces == nullptr || !between_.card.enter_fixed(between_.bounces, kBytes, between_.bounce_keys)) {
    return false;
  }
  memset(between_.bounces, 0, kBytes);
  between_.card.prefetch_fixed(between_.bounces, kBytes, between_.bounce_keys);
  return true;
}

/// Holds the piece for the card and enters it, unless there is no room for that now or there never will be.
CardHold Endpoint::hold_for_card(NetworkPiece& piece, char* address, uint64_t bytes, bool write, uint64_t& offset) {
  const uint64_t held_bytes = pager::bytes_of_hold(address, bytes);
  uint64_t& held = between_.held_bytes[write ? 1 : 0];
  const bool no_room = pager::is_armed() && held > 0 && held + held_bytes > pager::largest_optional_hold() / 2;
  if (no_room || between_.card_pieces >= kMostCardPieces) {
    return CardHold::kNoRoom;
  }
  if (!pager::hold_for_peer(address, bytes, write, offset)) {
    return CardHold::kImpossible;
  }
  if (!between_.card.enter(offset, bytes, piece.keys)) {
    pager::drop_hold(address, bytes, write);
    return CardHold::kImpossible;
  }
  trace::count(Counter::kRdmaPinnedBytes, piece.keys.pin != nullptr ? bytes : 0);
  piece.held = {address, bytes};
  piece.held_bytes = held_bytes;
  piece.written = write;
  held += held_bytes;
  ++between_.card_pieces;
  return CardHold::kHeld;
}

void Endpoint::end_card_piece(NetworkPiece& piece) {
  between_.card.leave(piece.keys);
  end_piece(piece);
  --between_.card_pieces;
}

void Endpoint::prefetch_for_card(NetworkPiece& piece, bool write) {
  trace::count(Counter::kRdmaPrefetchedBytes, between_.card.prefetch(piece.offset, piece.held.bytes, piece.keys, write));
}

/// Whether a card may read the content where it is.
bool Endpoint::is_readable(const Content& content) {
  return between_.card.is_open() && content.layout == nullptr && content.bytes > 0 && pager::covers(content.address) &&
         pager::covers(content.address + content.bytes - 1);
}

/// Holds [first, first + count) of a message for its receiver's card, or less.
CardHold Endpoint::hold_ready(Sending& sending, uint64_t first, uint64_t count) {
  NetworkPiece* piece = take_from(between_.free_pieces);
  *piece = NetworkPiece{};
  char* const address = sending.content.address + first;
  uint64_t offset = 0;
  (void)pager::find_evictable(address, offset);
  count = between_.card.bytes_registered_together(offset, std::min(count, network_piece_bytes()));
  const CardHold hold = hold_for_card(*piece, address, count, false, offset);
  if (hold != CardHold::kHeld) {
    give_to(between_.free_pieces, piece);
    return hold;
  }
  piece->first = first;
  piece->bytes = count;
  piece->offset = offset;
  piece->next = sending.readied;
  sending.readied = piece;
  return hold;
}

/// Says where the piece that was held last is, in a record.
void Endpoint::tell_ready(const Sending& sending, WireRecord& record) {
  const NetworkPiece& piece = *sending.readied;
  record.first = piece.first;
  record.count = piece.bytes;
  record.address = reinterpret_cast<uint64_t>(alias_at(piece.offset));
  record.key = piece.keys.remote_key;
}

/// Offers content that a card may read, with its first piece if that may be held now; false if no card can read it.
bool Endpoint::offer_to_card(Sending& sending, OutgoingRecord* offer) {
  const CardHold hold = hold_ready(sending, 0, sending.content.bytes);
  if (hold == CardHold::kImpossible) {
    return false;
  }
  // From now on it may be read at any moment: nobody copies it aside.
  transfer_of(sending.record).state.store(TransferState::kTaken, std::memory_order_relaxed);
  offer->record.readable = 1;
  const bool asks = between_.card.scheme() == Scheme::kEnhanced;
  const bool is_held = hold == CardHold::kHeld;
  if (is_held && asks) {
    prefetch_for_card(*sending.readied, false);
  }
  const bool later = is_held && between_.card.scheme() == Scheme::kOptimal &&
                     !between_.card.is_mapped(sending.readied->offset, sending.readied->bytes, false);
  if (is_held && !later) {
    tell_ready(sending, offer->record);
  }
  offer->record.awaits_ready = later ? 1 : 0;
  post_record(offer);
  if (later) {
    prefetch_for_card(*sending.readied, false);
    send_ready(sending, true, false);
  }
  return true;
}

/// Answers the receiver: it can read the piece that was held last (`is_held`), or is to ask once more when all that it reads
/// now has come (`later`), or is to have the library carry the rest.
void Endpoint::send_ready(Sending& sending, bool is_held, bool later) {
  OutgoingRecord* const out = make_record(rank_of_member(sending.member), WireKind::kReady, 0);
  if (is_held) {
    tell_ready(sending, out->record);
  }
  out->record.awaits_ready = later ? 1 : 0;
  out->record.transfer = reinterpret_cast<uint64_t>(&sending);
  post_record(out);
}

/// Lets go of the pieces before `came`.
void Endpoint::let_go_of_ready(Sending& sending, uint64_t came) {
  for (NetworkPiece** link = &sending.readied; *link != nullptr;) {
    NetworkPiece* const piece = *link;
    if (piece->first + piece->bytes > came) {
      link = &piece->next;
      continue;
    }
    *link = piece->next;
    end_card_piece(*piece);
    give_to(between_.free_pieces, piece);
  }
}

/// The receiver wants the next piece. It always gets an answer at once, so nobody waits here for room that others may keep for
/// as long as they like, as offers do that nobody receives.
void Endpoint::want_piece(const WireRecord& wire) {
  auto& sending = *reinterpret_cast<Sending*>(wire.transfer);
  let_go_of_ready(sending, wire.address);
  const bool is_reading = sending.readied != nullptr;
  const CardHold hold = hold_ready(sending, wire.first, wire.count);
  const bool is_held = hold == CardHold::kHeld;
  if (is_held) {
    prefetch_for_card(*sending.readied, false);
  }
  send_ready(sending, is_held, hold == CardHold::kNoRoom && is_reading);
}

/// Begins to connect this process's card to a rank's.
void Endpoint::ask_to_read_from(int rank) {
  RemotePeer& peer = between_.peers[rank];
  rdma::PairAddress own = {};
  peer.reads_from_it = between_.card.make_pair(own);
  peer.reading = peer.reads_from_it != nullptr ? Reading::kAsked : Reading::kNever;
  if (peer.reads_from_it != nullptr) {
    OutgoingRecord* const out = make_record(rank, WireKind::kConnect, sizeof own);
    memcpy(out->record.payload(), &own, sizeof own);
    post_record(out);
  }
}

/// A rank's card is to read from this process's.
void Endpoint::let_read(int rank, const WireRecord& wire) {
  RemotePeer& peer = between_.peers[rank];
  rdma::PairAddress theirs = {};
  rdma::PairAddress own = {};
  memcpy(&theirs, wire.payload(), sizeof theirs);
  if (peer.is_read_by_it != nullptr) {
    between_.card.drop(peer.is_read_by_it);  // it has failed: the other side connects once more
  }
  peer.is_read_by_it = between_.card.is_open() ? between_.card.make_pair(own) : nullptr;
  const bool good = peer.is_read_by_it != nullptr && between_.card.connect(peer.is_read_by_it, theirs);
  if (!good && peer.is_read_by_it != nullptr) {
    between_.card.drop(peer.is_read_by_it);
    peer.is_read_by_it = nullptr;
  }
  OutgoingRecord* const out = make_record(rank, WireKind::kConnected, sizeof own);
  out->record.first = good ? 1 : 0;
  memcpy(out->record.payload(), &own, sizeof own);
  post_record(out);
}

void Endpoint::may_read_from(int rank, const WireRecord& wire) {
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
  if (between_.card.scheme() != Scheme::kOptimal || !pager::find_evictable(receiving.into.address, offset)) {
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
