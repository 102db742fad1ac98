// See transfer.h.
#include "direct/transfer.h"

namespace headroom::direct {

bool copy_pieces(Sharing& sharing, const Content& from, const Content& to) {
  Walk reader(from);
  Walk writer(to);
  uint64_t at = 0;
  const uint64_t pieces = sharing.pieces;
  for (;;) {
    const uint64_t piece = sharing.next_piece.fetch_add(1, std::memory_order_relaxed);
    if (piece >= pieces) {
      return false;
    }
    const uint64_t begin = piece * kPieceBytes;
    const uint64_t end = begin + kPieceBytes < sharing.copied_bytes ? begin + kPieceBytes : sharing.copied_bytes;
    if (begin > at) {
      reader.skip(begin - at);
      writer.skip(begin - at);
    }
    copy(writer, reader, end - begin);
    at = end;
    // acq_rel: whoever finishes has all that the other side wrote.
    if (sharing.done_pieces.fetch_add(1, std::memory_order_acq_rel) + 1 == pieces) {
      return true;
    }
  }
}

}  // namespace headroom::direct
