// Nests: where the bytes of a regular file view or datatype lie, in a hundred bytes however many pieces there are.
//
// A nest is a piece of so many bytes, repeated at equal distances, the whole of that repeated again, and so on: what vectors,
// subarrays and most other constructors make. From it an aggregator computes which part of a rank's bytes lies in its window,
// without a list of pieces: those lists take most memory in other implementations of two-phase I/O.
//
// The bytes of a nest have an order, that of the datatype: its stream. Where the stream goes through the file only forwards
// (MPI demands it of file views), the bytes before a position of the file are a part of the stream from its beginning.
//
// Nothing here allocates or has state.
#pragma once

#include <cstdint>

namespace headroom::collio {

inline constexpr int kMostLevels = 5;

struct Level {
  int64_t count;
  int64_t stride;  // from one repetition to the next, in bytes
};

struct Nest {
  int64_t first = 0;  // where the first byte lies
  int64_t piece = 0;  // bytes of one piece
  int64_t levels = 0;
  Level level[kMostLevels] = {};  // the outermost first
};

/// Repeats all of it `count` times, `stride` bytes apart; false (and it is as before) if that needs too many levels or goes
/// beyond what fits 63 bits.
bool repeat(Nest& nest, int64_t count, int64_t stride);

/// Adds what comes next in the stream where both together are a nest again; else false, and `nest` is as before.
bool append(Nest& nest, const Nest& next);

/// Bytes of its stream.
int64_t bytes_of(const Nest& nest);

/// From its first byte to the end of its last one.
int64_t span_of(const Nest& nest);

/// Whether its stream goes through the file forwards, no byte twice.
bool goes_forwards(const Nest& nest);

/// Bytes of the stream that lie before file position `position`. It must go forwards.
int64_t bytes_before(const Nest& nest, int64_t position);

/// Where byte `offset` of the stream lies.
int64_t position_of(const Nest& nest, int64_t offset);

/// Walks a nest's pieces from some byte of the stream on.
class NestWalk {
 public:
  NestWalk(const Nest& nest, int64_t offset);
  [[nodiscard]] int64_t position() const { return position_; }
  /// Bytes of the present piece that are ahead.
  [[nodiscard]] int64_t left() const { return left_; }
  /// Passes `bytes` bytes, at most left().
  void pass(int64_t bytes) {
    position_ += bytes;
    left_ -= bytes;
    if (left_ == 0) {
      next();
    }
  }
  /// Whole pieces ahead on the innermost level, from the present one on: 0 in the middle of a piece.
  [[nodiscard]] int64_t pieces_ahead() const;
  /// How far these are apart.
  [[nodiscard]] int64_t step() const { return nest_.levels > 0 ? nest_.level[nest_.levels - 1].stride : nest_.piece; }
  [[nodiscard]] int64_t piece() const { return nest_.piece; }
  /// Passes `count` of them.
  void pass_pieces(int64_t count);

 private:
  void next();

  const Nest& nest_;
  int64_t position_;
  int64_t left_;
  int64_t index_[kMostLevels] = {};
};

/// Copies the next `bytes` bytes of the walk from a stream into a window of the file, whose first byte is at `begin`.
void scatter(NestWalk& walk, char* window, int64_t begin, const char* stream, int64_t bytes);
/// The same from the window into the stream.
void gather(NestWalk& walk, const char* window, int64_t begin, char* stream, int64_t bytes);

}  // namespace headroom::collio
