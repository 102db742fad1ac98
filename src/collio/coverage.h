// The bytes of a window that ranks write: a bit for each unit, the largest that divides all pieces, so a few KiB for a window.
//
// Sums would not do: where two ranks write the same bytes there may be a hole elsewhere. Bytes that are not covered must be
// read before the window is written, or left out of the write.
#pragma once

#include <cstdint>

#include "collio/nest.h"

namespace headroom::collio {

class Coverage {
 public:
  /// For windows of up to `bytes` bytes; false if there is no memory.
  bool open(int64_t bytes);
  void close();

  /// Of the window that begins at `begin`; `unit` divides what is marked, counted from there.
  void begin(int64_t begin, int64_t end, int64_t unit);
  /// `bytes` bytes of the walk are written.
  void mark(NestWalk walk, int64_t bytes);
  void mark(int64_t position, int64_t bytes);
  [[nodiscard]] bool is_full() const;
  /// How many stretches without a hole there are.
  [[nodiscard]] int64_t stretches() const;
  /// Behind the last byte that is marked; the window's beginning if none is.
  [[nodiscard]] int64_t last() const;
  /// The next such stretch at or after `position`; false if there is none.
  bool next_stretch(int64_t position, int64_t& begin, int64_t& end) const;

 private:
  [[nodiscard]] bool is_marked(int64_t unit) const { return (words_[unit / 64] >> (unit % 64) & 1) != 0; }
  [[nodiscard]] int64_t find(int64_t unit, bool marked) const;

  uint64_t* words_ = nullptr;
  uint64_t room_bytes_ = 0;
  int64_t begin_ = 0;
  int64_t units_ = 0;
  int64_t unit_ = 1;
};

/// The largest number of bytes that divides all that bytes [from, until) of the nest's stream are made of, and their distances
/// from `begin`; and `so_far` unless that is 0.
int64_t common_unit(int64_t so_far, const Nest& nest, int64_t from, int64_t until, int64_t begin);

}  // namespace headroom::collio
