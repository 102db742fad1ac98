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

}  // namespace headroom::direct
