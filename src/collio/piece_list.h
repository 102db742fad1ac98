// Piece lists: where the bytes of an irregular file view lie, in 2 to 4 bytes a piece.
//
// A view is regular if it is a nest (nest.h). Of any other the gap before each piece and its length are written down as numbers
// of variable length (7 bits a byte, the low ones first), with a checkpoint every 256 pieces to begin from. Neighbours are one
// piece. The list of a view is that of its file type, once; a ViewOfPieces repeats it.
//
// The owner of a list alone changes it; a walk must not outlive it. Memory is malloc()'s.
#pragma once

#include <cstdint>

#include "collio/nest.h"

namespace headroom::collio {

class PieceList {
 public:
  PieceList() = default;
  ~PieceList();
  PieceList(const PieceList&) = delete;
  PieceList& operator=(const PieceList&) = delete;

  /// The next piece; false if it lies before the end of the one before, there are too many, or there is no memory: then the
  /// list is of no use.
  bool add(int64_t position, int64_t bytes);
  bool add(const Nest& nest);
  bool add(const PieceList& other, int64_t offset);
  /// To be called after the last piece, before anything is asked; false if there is no memory.
  bool end_list();

  [[nodiscard]] int64_t bytes() const { return bytes_; }
  [[nodiscard]] int64_t pieces() const { return pieces_; }
  [[nodiscard]] int64_t first() const { return first_; }
  [[nodiscard]] int64_t end() const { return end_; }
  /// Of memory.
  [[nodiscard]] int64_t size() const;

  /// Bytes of the stream before a position.
  [[nodiscard]] int64_t bytes_before(int64_t position) const;

 private:
  friend class PieceWalk;
  struct Checkpoint {
    int64_t position;  // the end of the piece before
    int64_t offset;    // in the stream
    uint64_t at;       // in the code
  };
  bool write_pending();
  bool write_number(uint64_t number);

  unsigned char* code_ = nullptr;
  uint64_t code_bytes_ = 0;
  uint64_t code_room_ = 0;
  Checkpoint* checkpoints_ = nullptr;
  int64_t checkpoint_count_ = 0;
  int64_t checkpoint_room_ = 0;
  int64_t bytes_ = 0;
  int64_t pieces_ = 0;
  int64_t first_ = 0;
  int64_t end_ = 0;
  int64_t written_end_ = 0;    // of the last piece in the code
  int64_t written_bytes_ = 0;  // before the pending one
  int64_t pending_ = 0;        // where the last piece begins, which may grow
  int64_t pending_bytes_ = 0;
};

/// Walks the pieces of a list from byte `offset` of its stream on.
class PieceWalk {
 public:
  PieceWalk(const PieceList& list, int64_t offset);
  [[nodiscard]] int64_t position() const { return position_; }
  /// Bytes of the present piece that are ahead; 0 at the end of the list.
  [[nodiscard]] int64_t left() const { return left_; }
  void pass(int64_t bytes) {
    position_ += bytes;
    left_ -= bytes;
    if (left_ == 0) {
      read_piece();
    }
  }

 private:
  friend class PieceList;
  PieceWalk(const PieceList& list, const PieceList::Checkpoint& from);
  void read_piece();
  uint64_t read_number();

  const PieceList* list_;
  uint64_t at_ = 0;
  int64_t position_ = 0;
  int64_t left_ = 0;
};

/// A part of a stream whose pieces are those of a list, repeated.
struct ViewOfPieces {
  const PieceList* list = nullptr;
  int64_t origin = 0;  // of the first repetition
  int64_t extent = 0;  // from one to the next
};

int64_t bytes_before(const ViewOfPieces& view, int64_t position);

/// Walks such a view; it has no end.
class ViewWalk {
 public:
  ViewWalk(const ViewOfPieces& view, int64_t offset);
  [[nodiscard]] int64_t position() const { return base_ + walk_.position(); }
  [[nodiscard]] int64_t left() const { return walk_.left(); }
  void pass(int64_t bytes);

 private:
  const ViewOfPieces& view_;
  int64_t base_;
  PieceWalk walk_;
};

/// Writes a number in 7 bits a byte; at most 10 bytes. Returns how many.
int write_number(uint64_t number, unsigned char* to);
/// Reads one; `at` moves behind it.
inline uint64_t read_number(const unsigned char*& at) {
  uint64_t number = *at & 0x7f;
  for (int shift = 7; (*at++ & 0x80) != 0; shift += 7) {
    number |= static_cast<uint64_t>(*at & 0x7f) << shift;
  }
  return number;
}

}  // namespace headroom::collio
