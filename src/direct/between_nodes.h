// Messages between nodes, matched by this layer (setting `--between own`); see docs/dev/between_nodes.md.
//
//   sender                                                        receiver
//   up to 64 KiB:   EAGER ──────────────────────────────────────► its own channel ──► matching, as from a node-mate
//   long content:   OFFER ──────────────────────────────────────► its own channel ──► matching
//                   ◄─────────────────────────────────────── ASK  once a receive has it: {first, bytes, tag}
//                   piece ──────────────────────────────────────► to where it belongs
//                   ◄─────────────────────────────────────── ASK  for the next, two under way at a time
//                   ◄─────────────────────────────────────── END  from then on the sender may write its memory
//
// A message from another node is put into the channel from this process to itself: a short one as a record like any, one that
// fits no such record as content that was copied aside, a long one as a stream without a ring. The receiver asks for the
// content of a long message when it claims it. So receives, probes and cancelled messages know nothing of nodes. Both sides
// hold a piece's memory while it is under way; where that may not be held, or has gaps, a piece goes through message memory. A
// sender that would not wait copies its content aside, as inside a node.
//
// Records to one rank go in order, and no more than kWindow units of them lie between its taking and our sending, so that they
// do not pile up in the library; others wait here. Each record says how much its sender has taken, and a record of its own
// (TAKEN) says it if there is no other to send.
#pragma once

#include <cstdint>

#include "direct/channel.h"
#include "direct/layout.h"
#include "direct/network.h"
#include "direct/transfer.h"
#include "rdma/card.h"

namespace headroom::direct {

struct Sending;
struct Receiving;

/// Members of the node have numbers from 0 on, ranks of the world on other nodes these. -1 is nobody, or anybody of the node.
constexpr bool is_on_other_node(int member) { return member < -1; }
constexpr int member_of_rank(int rank) { return -2 - rank; }
constexpr int rank_of_member(int member) { return -2 - member; }
/// Of a receive from anybody on any node.
inline constexpr int kAnyMember = INT32_MIN;

enum class WireKind : uint32_t { kEager = 1, kOffer, kAsk, kWant, kReady, kEnd, kCancel, kTaken, kBye, kConnect, kConnected };

/// A record as it is sent. `transfer` is the sender's name for a message; the answer repeats it.
struct WireRecord {
  WireKind kind;
  int32_t tag;
  uint64_t context;
  int32_t source;
  uint32_t taken;         // units that this process has taken of the one it is sent to
  uint64_t bytes;         // of the message's content
  uint64_t transfer;      // of longer content
  uint64_t first;         // the piece begins there; END: 1 if the message was cancelled
  uint64_t count;         // and has so many bytes
  uint64_t address;       // READY, OFFER: where the card reads the piece; ASK: the piece's tag; WANT: bytes that have come
  uint32_t key;           // for the card
  uint16_t readable;      // OFFER: 1 if the receiver's card may read the content
  uint16_t awaits_ready;  // and READY follows by itself; READY: without a piece for now

  [[nodiscard]] char* payload() { return reinterpret_cast<char*>(this + 1); }
  [[nodiscard]] const char* payload() const { return reinterpret_cast<const char*>(this + 1); }
};
static_assert(sizeof(WireRecord) == 72);

/// Content up to this size goes in the record: while memory is enough, and while it is short.
inline constexpr uint64_t kLargestEager = kRecordBytes - sizeof(WireRecord);
inline constexpr uint64_t kLargestEagerShort = kLargestPayload;
/// A record is so many units.
constexpr uint32_t units_of(uint64_t record_bytes) { return 1 + static_cast<uint32_t>(record_bytes >> 13); }
inline constexpr uint32_t kWindow = 64;
/// Content is asked for in pieces of this size: while memory is enough, and while it is short.
inline constexpr uint64_t kNetworkPiece = 1 << 20;
inline constexpr uint64_t kSmallNetworkPiece = 256 << 10;
inline constexpr int kPiecesAtOnce = 2;

/// A record on its way out, in message memory.
struct OutgoingRecord {
  OutgoingRecord* next;
  NetworkTransfer* transfer;
  int32_t rank;
  uint32_t bytes;  // with the header
  uint64_t memory_bytes;
  WireRecord record;
};

/// Whether this process's card reads from a rank's.
enum class Reading : uint8_t { kNotYet, kAsked, kConnected, kBroken, kNever };

/// So many pieces may be held for cards: a block counts its holds with 16 bits.
inline constexpr uint64_t kMostCardPieces = 32768;

/// After so many failures of a card towards a rank the library carries all that comes from it.
inline constexpr uint32_t kMostFailures = 4;

/// This process's state for a rank on another node.
struct RemotePeer {
  uint32_t sent;       // units to it
  uint32_t they_took;  // of these, as it has said
  uint32_t we_took;    // units of its
  uint32_t we_told;    // of these, as it was told
  bool was_sent_to;    // any record
  Reading reading;
  uint32_t failures;  // of connections to it
  uint64_t reads;     // of its memory, under way
  rdma::QueuePair* reads_from_it;
  rdma::QueuePair* is_read_by_it;
  OutgoingRecord* first;  // that wait
  OutgoingRecord* last;
};

/// A message of another node's whose content is asked for.
struct Arrival {
  int rank = 0;
  int pieces = 0;  // under way
  uint64_t transfer = 0;
  uint64_t asked = 0;
  uint64_t came = 0;
  RecordHeader* record = nullptr;  // in this process's own channel
  // Where the card reads it:
  bool readable = false;
  bool was_read = false;
  bool is_broken = false;  // the card has failed
  bool awaits_ready = false;
  bool wants_later = false;  // once nothing is being read any more: the sender has no room before
  bool is_prepared = false;
  uint32_t ready_key = 0;
  uint64_t ready_address = 0;
  uint64_t ready_first = 0;
  uint64_t ready_count = 0;  // 0: none is ready that is not being read
  Arrival* next = nullptr;
  Arrival* previous = nullptr;
};

/// A piece of content on its way, in or out.
struct NetworkPiece {
  NetworkTransfer* transfer = nullptr;
  Sending* sending = nullptr;      // out
  Receiving* receiving = nullptr;  // in
  Arrival* arrival = nullptr;
  Span held = {};
  uint64_t held_bytes = 0;
  bool written = false;  // held for writing
  char* bounce = nullptr;
  uint64_t first = 0;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // in the partition
  // Where the card reads it:
  rdma::Registered keys;
  int reads = 0;  // under way
  bool failed = false;
  int slot = -1;              // of the bounce area
  uint64_t bounced_from = 0;  // where the content begins in the slot
  uint64_t bounced_head = 0;  // bytes from there on that belong to the piece's beginning
  uint64_t bounced_tail = 0;  // and from the slot's second page on to its end
  NetworkPiece* next = nullptr;
};

/// Content goes through a slot of so many bytes, with a page at each end, where it lies differently in its pages on both sides.
inline constexpr uint64_t kBouncedBytes = 256 << 10;
inline constexpr uint64_t kBounceSlotBytes = kBouncedBytes + 2 * 4096;
inline constexpr int kBounceSlots = 4;

/// Whether memory is held for the card.
enum class CardHold : uint8_t { kHeld, kNoRoom, kImpossible };

/// How long a piece may be now.
uint64_t network_piece_bytes();

/// The endpoint's state for messages between nodes.
struct BetweenNodes {
  NetworkFunctions network = {};
  bool on = false;
  RemotePeer* peers = nullptr;  // by rank of the world
  OutgoingRecord* flying = nullptr;
  uint64_t queued = 0;  // records that wait
  uint64_t queued_bytes = 0;
  NetworkPiece* pieces = nullptr;  // under way
  NetworkPiece* free_pieces = nullptr;
  Arrival* arrivals = nullptr;
  Arrival* free_arrivals = nullptr;
  uint64_t held_bytes[2] = {};  // for what goes out, and for what comes in: neither waits for room that the other has
  uint64_t sendings = 0;        // that their receivers have not had
  int64_t expected = 0;         // posted receives that may be from other nodes
  uint32_t looks = 0;
  uint32_t piece_tags = 0;    // used so far
  int byes = 0;               // that came
  uint64_t reads = 0;         // of the card, under way
  uint64_t reads_posted = 0;  // in all
  uint64_t card_pieces = 0;   // held for cards
  rdma::Card card;
  char* bounces = nullptr;  // kBounceSlots of kBounceSlotBytes, where the card's paging wants whole pages
  rdma::Registered bounce_keys;
  uint32_t bounces_in_use = 0;  // bit by slot
  bool ending = false;          // all messages are over: nothing but byes is sent any more
};

}  // namespace headroom::direct
