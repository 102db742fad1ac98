// Long content between nodes: the sender's and the receiver's pieces; see between_nodes.h.
//
// A piece's memory is held while the library reads or writes it. The amount that is held so is bounded while memory is short,
// separately for pieces that go out and pieces that come in, so that neither waits for the other. A sender without room copies
// the piece through message memory at once, a receiver asks later; content with gaps is copied on both sides.
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

constexpr uint64_t kLeastNetworkPiece = 64 << 10;

}  // namespace

uint64_t network_piece_bytes() {
  return !pager::is_armed()
             ? kNetworkPiece
             : std::clamp(pager::largest_optional_hold() / (2 * kPiecesAtOnce), kLeastNetworkPiece, kSmallNetworkPiece);
}

namespace {

Arrival* arrival_of(RecordHeader* record) { return reinterpret_cast<Arrival*>(transfer_of(record).address); }

/// The record of a message to another node, which no channel has.
constexpr uint64_t kRemoteRecordBytes = sizeof(RecordHeader) + sizeof(Transfer);

}  // namespace

Sending* Endpoint::begin_remote_sending(int member, const Content& content, bool synchronous) {
  auto* record = static_cast<RecordHeader*>(memory_.allocate(kRemoteRecordBytes));
  if (record == nullptr) {
    return nullptr;
  }
  Sending* sending = take_from(free_sendings_);
  *sending = Sending{};
  sending->record = record;
  sending->content = content;
  sending->synchronous = synchronous;
  sending->member = member;
  Transfer& transfer = *new (record->payload()) Transfer{};
  transfer.bytes = content.bytes;
  transfer.state.store(TransferState::kOffered, std::memory_order_relaxed);
  keep(const_cast<Layout*>(content.layout));
  ++between_.sendings;
  trace::count(Counter::kMessagesBetweenLong);
  return sending;
}

void Endpoint::release_remote_sending(Sending* sending) {
  memory_.release(sending->record, kRemoteRecordBytes, true);
  --between_.sendings;
}

/// Asks the receiver to pass over the message. The message's end tells whether it does.
void Endpoint::cancel_remote_sending(Sending* sending, bool* cancelled) {
  sending->was_cancelled = cancelled;
  OutgoingRecord* const out = make_record(rank_of_member(sending->member), WireKind::kCancel, 0);
  out->record.transfer = reinterpret_cast<uint64_t>(sending);
  post_record(out);
}

/// The receiver has all that it wants of a message, or passes over it.
void Endpoint::end_remote_sending(Sending* sending, bool cancelled) {
  let_go_of_ready(*sending, UINT64_MAX);
  sending->ended = true;
  sending->cancelled = cancelled;
  if (cancelled && sending->was_cancelled != nullptr) {
    *sending->was_cancelled = true;
  }
  finish_remote_sending(sending);
}

void Endpoint::finish_remote_sending(Sending* sending) {
  if (sending->ended && sending->pieces_out == 0) {
    while (transfer_of(sending->record).state.load(std::memory_order_acquire) == TransferState::kCopyingAside) {
      relax();  // another thread of this process does, and says so when it is over
    }
    transfer_of(sending->record).state.store(TransferState::kDone, std::memory_order_release);
  }
}

/// Holds [address, address + bytes) for the library if it may be; `piece` says so. One piece each way always may.
bool Endpoint::hold_piece(NetworkPiece& piece, char* address, uint64_t bytes, bool write) {
  if (!pager::overlaps(address, bytes)) {
    return true;
  }
  const uint64_t held_bytes = pager::bytes_of_hold(address, bytes);
  uint64_t& held = between_.held_bytes[write ? 1 : 0];
  if (pager::is_armed() && held > 0 && held + held_bytes > pager::largest_optional_hold() / 2) {
    return false;
  }
  pager::hold(address, bytes, write);
  piece.held = {address, bytes};
  piece.held_bytes = held_bytes;
  piece.written = write;
  held += held_bytes;
  return true;
}

void Endpoint::end_piece(NetworkPiece& piece) {
  between_.held_bytes[piece.written ? 1 : 0] -= piece.held_bytes;
  if (piece.held.bytes > 0) {
    pager::drop_hold(piece.held.begin, piece.held.bytes, piece.written);
  }
  if (piece.bounce != nullptr) {
    memory_.release(piece.bounce, piece.bytes, true);
  }
}

NetworkPiece* Endpoint::begin_piece() {
  NetworkPiece* piece = take_from(between_.free_pieces);
  *piece = NetworkPiece{};
  piece->next = between_.pieces;
  between_.pieces = piece;
  return piece;
}

/// Counts a piece that comes in through message memory like one that is held; false if it may not come now.
bool Endpoint::count_bounce(NetworkPiece& piece) {
  constexpr uint64_t kMostWhileEnough = 64 << 20;
  const uint64_t most = pager::is_armed() ? pager::largest_optional_hold() / 2 : kMostWhileEnough;
  uint64_t& held = between_.held_bytes[1];
  if (held > 0 && held + piece.bytes > most) {
    return false;
  }
  piece.written = true;
  piece.held_bytes = piece.bytes;
  held += piece.bytes;
  return true;
}

char* Endpoint::make_bounce(NetworkPiece& piece) {
  piece.bounce = static_cast<char*>(memory_.allocate(piece.bytes));
  if (piece.bounce == nullptr) {
    memory_.die_without("content on its way to or from another node");
  }
  trace::count(Counter::kBetweenPiecesCopied);
  return piece.bounce;
}

/// The receiver has asked for a piece.
void Endpoint::send_piece(int rank, const WireRecord& wire) {
  auto* sending = reinterpret_cast<Sending*>(wire.transfer);
  Transfer& transfer = transfer_of(sending->record);
  TransferState state = transfer.state.load(std::memory_order_acquire);
  for (;;) {
    if (state == TransferState::kCopyingAside) {  // another thread of this process does
      relax();
      state = transfer.state.load(std::memory_order_acquire);
    } else if (state == TransferState::kOffered || state == TransferState::kAside) {
      const TransferState taken = state == TransferState::kOffered ? TransferState::kTaken : TransferState::kTakenAside;
      if (transfer.state.compare_exchange_weak(state, taken, std::memory_order_acq_rel)) {
        state = taken;
        break;
      }
    } else {
      break;
    }
  }
  NetworkPiece& piece = *begin_piece();
  piece.sending = sending;
  piece.bytes = wire.count;
  ++sending->pieces_out;
  char* from = nullptr;
  if (state == TransferState::kTakenAside) {
    from = memory_.at<char>(transfer.aside) + wire.first;
  } else if (sending->content.layout == nullptr &&
             hold_piece(piece, sending->content.address + wire.first, wire.count, false)) {
    from = sending->content.address + wire.first;
  } else {
    from = make_bounce(piece);
    Walk content({sending->content.address, wire.first + wire.count, sending->content.layout});
    content.skip(wire.first);
    Walk into({from, wire.count, nullptr});
    copy(into, content, wire.count);
  }
  piece.transfer = between_.network.send_piece(rank, static_cast<int>(wire.address), from, wire.count);
  trace::count(Counter::kBetweenPieces);
}

/// `record` is in this process's own channel.
Arrival* Endpoint::begin_arrival(int rank, const WireRecord& offer, RecordHeader* record) {
  Arrival* arrival = take_from(between_.free_arrivals);
  *arrival = Arrival{};
  arrival->rank = rank;
  arrival->transfer = offer.transfer;
  arrival->record = record;
  arrival->readable = offer.readable != 0 && between_.card.is_open();
  arrival->awaits_ready = offer.awaits_ready != 0;
  arrival->ready_count = offer.count;
  arrival->ready_address = offer.address;
  arrival->ready_key = offer.key;
  arrival->next = between_.arrivals;
  if (arrival->next != nullptr) {
    arrival->next->previous = arrival;
  }
  between_.arrivals = arrival;
  return arrival;
}

/// Tells the sender that its message needs nothing of it any more.
void Endpoint::end_arrival(Arrival* arrival, bool cancelled) {
  OutgoingRecord* const out = make_record(arrival->rank, WireKind::kEnd, 0);
  out->record.transfer = arrival->transfer;
  out->record.first = cancelled ? 1 : 0;
  post_record(out);
  (arrival->previous != nullptr ? arrival->previous->next : between_.arrivals) = arrival->next;
  if (arrival->next != nullptr) {
    arrival->next->previous = arrival->previous;
  }
  give_to(between_.free_arrivals, arrival);
}

Arrival* Endpoint::find_arrival(int rank, uint64_t transfer) {
  Arrival* arrival = between_.arrivals;
  while (arrival != nullptr && (arrival->rank != rank || arrival->transfer != transfer)) {
    arrival = arrival->next;
  }
  return arrival;
}

/// The sender wants its message back, and gets it unless a receive has it.
void Endpoint::cancel_arrival(int rank, uint64_t transfer) {
  Arrival* const arrival = find_arrival(rank, transfer);
  TransferState streaming = TransferState::kStreaming;
  if (arrival != nullptr &&
      transfer_of(arrival->record)
          .state.compare_exchange_strong(streaming, TransferState::kCancelled, std::memory_order_acq_rel)) {
    end_arrival(arrival, true);
  }
}

/// Asks for the next piece of what `receiving` gets, `wanted` bytes in all; false if it may not be held now.
bool Endpoint::ask_for_piece(Receiving& receiving, Arrival& arrival, uint64_t wanted) {
  NetworkPiece& piece = *begin_piece();
  piece.receiving = &receiving;
  piece.arrival = &arrival;
  piece.first = arrival.asked;
  piece.bytes = std::min(wanted - arrival.asked, network_piece_bytes());
  char* into = receiving.into.address + piece.first;
  const bool has_gaps = receiving.into.layout != nullptr;
  if (has_gaps ? !count_bounce(piece) : !hold_piece(piece, into, piece.bytes, true)) {
    between_.pieces = piece.next;
    give_to(between_.free_pieces, &piece);
    return false;
  }
  if (has_gaps) {
    into = make_bounce(piece);
  }
  const int tag = kFirstPieceTag + static_cast<int>(between_.piece_tags++ % kPieceTags);
  piece.transfer = between_.network.receive_piece(arrival.rank, tag, into, piece.bytes);
  OutgoingRecord* const out = make_record(arrival.rank, WireKind::kAsk, 0);
  out->record.transfer = arrival.transfer;
  out->record.first = piece.first;
  out->record.count = piece.bytes;
  out->record.address = static_cast<uint64_t>(tag);
  post_record(out);
  arrival.asked += piece.bytes;
  ++arrival.pieces;
  return true;
}

/// Goes on with a receive that has a message of another node; `receiving.record` is nullptr once all has come.
bool Endpoint::move_arrival(Receiving& receiving) {
  if (helping_) {
    return false;
  }
  Arrival* arrival = arrival_of(receiving.record);
  const uint64_t wanted = std::min(transfer_of(receiving.record).bytes, receiving.into.bytes);
  bool moved = false;
  if (arrival->readable) {
    moved = move_by_card(receiving, *arrival, wanted);
  }
  if (arrival->readable || arrival->awaits_ready) {
    // the card goes on
  } else if (arrival->is_broken || arrival->was_read) {
    if (arrival->pieces > 0) {
      return moved;
    }
    arrival->asked = arrival->came;  // the library carries the rest
    arrival->is_broken = arrival->was_read = false;
  }
  while (!arrival->readable && !arrival->awaits_ready && arrival->asked < wanted && arrival->pieces < kPiecesAtOnce &&
         ask_for_piece(receiving, *arrival, wanted)) {
    moved = true;
  }
  if (arrival->came < wanted || arrival->awaits_ready) {
    return moved;
  }
  trace::count(Counter::kRdmaMessages, arrival->was_read ? 1 : 0);
  end_arrival(arrival, false);
  transfer_of(receiving.record).state.store(TransferState::kDone, std::memory_order_release);
  ChannelReader::give_back(receiving.record);
  receiving.record = nullptr;
  return true;
}

/// Ends the pieces that are over.
bool Endpoint::move_pieces() {
  bool moved = false;
  for (NetworkPiece** link = &between_.pieces; *link != nullptr;) {
    NetworkPiece* const piece = *link;
    if (!between_.network.test(piece->transfer)) {
      link = &piece->next;
      continue;
    }
    *link = piece->next;
    moved = true;
    if (piece->sending != nullptr) {
      end_piece(*piece);
      --piece->sending->pieces_out;
      finish_remote_sending(piece->sending);
    } else {
      if (piece->bounce != nullptr) {
        const Content& into = piece->receiving->into;
        Walk to({into.address, piece->first + piece->bytes, into.layout});
        to.skip(piece->first);
        Walk from({piece->bounce, piece->bytes, nullptr});
        copy(to, from, piece->bytes);
      }
      end_piece(*piece);
      --piece->arrival->pieces;
      piece->arrival->came += piece->bytes;
    }
    give_to(between_.free_pieces, piece);
  }
  return moved;
}

}  // namespace headroom::direct
