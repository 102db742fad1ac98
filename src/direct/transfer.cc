// See transfer.h.
#include "direct/transfer.h"

#include <algorithm>

#include "direct/copy.h"
#include "direct/peer_memory.h"

namespace headroom::direct {

Pieces copy_pieces(Sharing& sharing, const Content& from, const Content& to, const Way& way) {
  Walk reader(from);
  Walk writer(to);
  uint64_t at = 0;
  const uint64_t pieces = sharing.pieces;
  const uint64_t piece_bytes = sharing.piece_bytes;
  const bool is_plain = way.reach == Reach::kHere && from.layout == nullptr && to.layout == nullptr;
  const bool past_cache = is_plain && sharing.copied_bytes >= past_cache_from();
  for (;;) {
    const uint64_t piece = sharing.next_piece.fetch_add(1, std::memory_order_relaxed);
    if (piece >= pieces) {
      return Pieces::kOthersGoOn;
    }
    const uint64_t begin = piece * piece_bytes;
    const uint64_t end = std::min<uint64_t>(begin + piece_bytes, sharing.copied_bytes);
    if (is_plain) {
      expect_use(from.address + begin, end - begin);
      expect_use(to.address + begin, end - begin);
    }
    if (past_cache) {
      copy_past_cache(to.address + begin, from.address + begin, end - begin);
    } else {
      reader.skip(begin - at);
      writer.skip(begin - at);
      if (!copy(writer, reader, end - begin, way)) {
        return Pieces::kLost;
      }
    }
    at = end;
    // acq_rel: the side that finishes has all that the other side wrote.
    if (sharing.done_pieces.fetch_add(1, std::memory_order_acq_rel) + 1 == pieces) {
      return Pieces::kComplete;
    }
  }
}

}  // namespace headroom::direct
