// See held_pieces.h.
#include "direct/held_pieces.h"

#include <algorithm>

#include "base/log.h"
#include "direct/peer_hold.h"
#include "direct/peer_memory.h"
#include "pager/pager.h"

namespace headroom::direct {
namespace {

constexpr uint64_t kExpectedFrom = 16 << 10;  // shorter content is not worth a look at whether its pages are mapped

struct Piece {
  const char* begin;
  uint64_t reach;
  uint64_t bytes;  // of content
};

/// Passes the next content that reaches over at most `most` bytes, of a multiple of `grain`; `at_most` bytes of it.
Piece next_piece(Walk& ahead, uint64_t most, uint64_t at_most, uint64_t grain) {
  const char* low = ahead.piece();
  const char* high = low;
  uint64_t bytes = 0;
  do {
    uint64_t step = std::min(ahead.piece_bytes(), most);
    step = std::min(step, at_most - bytes);
    const char* const lowest = std::min<const char*>(ahead.piece(), low);
    const char* const highest = std::max<const char*>(ahead.piece() + step, high);
    if (bytes > 0 && bytes % grain == 0 && static_cast<uint64_t>(highest - lowest) > most) {
      break;
    }
    low = lowest;
    high = highest;
    bytes += step;
    ahead.pass(step);
  } while (bytes < at_most);
  return {low, static_cast<uint64_t>(high - low), bytes};
}

PeerRange range_of(const WindowPart& part, const Piece& piece, bool write) {
  const auto from_begin = static_cast<uint64_t>(piece.begin - address_in_part(part, 0));
  return {part.member, part.offset + from_begin, piece.reach, write};
}

/// Keeps this process's side of a piece from leaving, if it is there.
class OwnHold {
 public:
  OwnHold(const OwnSide& side, uint64_t done, uint64_t bytes) {
    if (side.content == nullptr || !pager::is_armed()) {
      return;
    }
    const char* const begin = side.content->address + done;
    if (side.content->layout != nullptr) {
      is_good_ = false;
    } else if (pager::overlaps(begin, bytes)) {
      is_good_ = pager::try_hold(begin, bytes, side.written);
      held_ = is_good_ ? begin : nullptr;
      bytes_ = bytes;
      written_ = side.written;
    }
  }
  ~OwnHold() {
    if (held_ != nullptr) {
      pager::drop_hold(held_, bytes_, written_);
    }
  }
  OwnHold(const OwnHold&) = delete;
  OwnHold& operator=(const OwnHold&) = delete;
  [[nodiscard]] bool is_good() const { return is_good_; }

 private:
  bool is_good_ = true;
  const char* held_ = nullptr;
  uint64_t bytes_ = 0;
  bool written_ = false;
};

/// How far it is from an address in a part to the end of its block.
uint64_t left_in_block(const WindowPart& part, const char* address) {
  const uint64_t offset = part.offset + static_cast<uint64_t>(address - address_in_part(part, 0));
  return arena::kBlockBytes - offset % arena::kBlockBytes;
}

/// Uses the piece as it is; false if that cannot be.
bool straight_on(const WindowPart& part, const Piece& piece, uint64_t done, bool write, const OwnSide (&own)[2],
                 PieceAction& action) {
  const OwnHold one(own[0], done, piece.bytes);
  const OwnHold other(own[1], done, piece.bytes);
  const PeerRange range = range_of(part, piece, write);
  if (!one.is_good() || !other.is_good() || !try_peer_hold(pager::session(), range)) {
    return false;
  }
  if (piece.reach >= kExpectedFrom) {
    expect_use(piece.begin, piece.reach);
  }
  action.straight(piece.bytes);
  drop_peer_hold(pager::session(), range);
  return true;
}

void by_bounce(Endpoint& endpoint, const WindowPart& part, Walk& ahead, const Piece& piece, uint64_t grain, bool write,
               PieceAction& action) {
  char* const bounce = static_cast<char*>(endpoint.memory().allocate(kBounceBytes));
  if (bounce == nullptr) {
    endpoint.memory().die_without("one-sided communication");
  }
  const char* const end = piece.begin + piece.reach;
  const uint64_t most = kBounceBytes / 2 / grain * grain;  // content that is read may overlap
  for (uint64_t done = 0; done < piece.bytes;) {
    const uint64_t left = std::min<uint64_t>(piece.bytes - done, most);
    const Piece part_of_it = next_piece(ahead, left_in_block(part, ahead.piece()), left, grain);
    action.before_hold(bounce, part_of_it.bytes);
    const PeerRange range = range_of(part, part_of_it, write);
    const char* const reached = part_of_it.begin + part_of_it.reach;
    if (!take_peer_hold(pager::session(), range, reached < end ? static_cast<uint64_t>(end - reached) : 0)) {
      endpoint.report_lost(part.member);
    }
    action.held(bounce, part_of_it.bytes);
    drop_peer_hold(pager::session(), range);
    action.after_hold(bounce, part_of_it.bytes);
    done += part_of_it.bytes;
  }
  endpoint.memory().release(bounce, kBounceBytes, true);
}

}  // namespace

void for_each_held_piece(Endpoint& endpoint, const WindowPart& part, const Content& there, uint64_t grain, bool write,
                         const OwnSide (&own)[2], PieceAction& action) {
  Walk ahead(there);
  for (uint64_t done = 0; done < there.bytes;) {
    Walk again = ahead;
    const uint64_t most = largest_peer_hold(pager::session(), part.member);
    Piece piece = {};
    if (const Span span = done == 0 ? span_of(there) : Span{}; done == 0 && span.bytes <= most) {
      piece = {span.begin, span.bytes, there.bytes};
    } else {
      piece = next_piece(ahead, most, there.bytes - done, grain);
    }
    if (!straight_on(part, piece, done, write, own, action)) {
      by_bounce(endpoint, part, again, piece, grain, write, action);
    }
    done += piece.bytes;
  }
}

}  // namespace headroom::direct
