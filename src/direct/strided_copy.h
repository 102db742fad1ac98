// Copying many short pieces of one length that lie at equal distances on both sides.
//
// A datatype's runs are such pieces, so this is where strided messages spend their time: the loops know the length of a piece
// when they are compiled. Rows of such rows that one side has along its lines and the other across them (a matrix that is
// turned round) are copied in tiles, so that a line that was brought in is used whole before it leaves the cache.
#pragma once

#include <cstdint>

namespace headroom::direct {

/// Longer pieces are worth a call each.
inline constexpr uint64_t kLongestPiece = 2048;
/// Longer pieces are not turned round in tiles: each fills whole lines.
inline constexpr uint64_t kTurnedPiece = 32;

struct Steps {
  int64_t to;
  int64_t from;
  uint64_t count;
};

/// `outer.count` rows of `inner.count` pieces of `bytes` bytes.
struct Grid {
  char* to;
  const char* from;
  uint64_t bytes;
  Steps inner;
  Steps outer;
};

void copy_grid(const Grid& grid);

}  // namespace headroom::direct
