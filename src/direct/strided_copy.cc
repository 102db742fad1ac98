// See strided_copy.h.
#include "direct/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "direct/copy.h"

namespace headroom::direct {
namespace {

// A tile's side: with 16-byte pieces 16 rows of 256 bytes on either side, which a first-level cache holds whatever the stride.
constexpr uint64_t kTile = 16;

/// A row of pieces whose length the compiler knows.
template <uint64_t kBytes>
struct KnownRow {
  void operator()(char* to, const char* from, const Steps& steps) const {
    for (uint64_t left = steps.count; left > 0; --left, to += steps.to, from += steps.from) {
      memcpy(to, from, kBytes);
    }
  }
};

/// Of any length that is not among the usual ones.
struct AnyRow {
  uint64_t bytes;
  void operator()(char* to, const char* from, const Steps& steps) const {
    for (uint64_t left = steps.count; left > 0; --left, to += steps.to, from += steps.from) {
      copy_short(to, from, bytes);
    }
  }
};

template <typename Row>
void copy_in_tiles(const Grid& grid, const Row& copy) {
  if (grid.outer.count == 1) {
    copy(grid.to, grid.from, grid.inner);
    return;
  }
  for (uint64_t row = 0; row < grid.outer.count; row += kTile) {
    const uint64_t rows = std::min<uint64_t>(grid.outer.count - row, kTile);
    for (uint64_t column = 0; column < grid.inner.count; column += kTile) {
      const uint64_t columns = std::min<uint64_t>(grid.inner.count - column, kTile);
      char* to = grid.to + static_cast<int64_t>(row) * grid.outer.to + static_cast<int64_t>(column) * grid.inner.to;
      const char* from =
          grid.from + static_cast<int64_t>(row) * grid.outer.from + static_cast<int64_t>(column) * grid.inner.from;
      for (uint64_t left = rows; left > 0; --left, to += grid.outer.to, from += grid.outer.from) {
        copy(to, from, {grid.inner.to, grid.inner.from, columns});
      }
    }
  }
}

}  // namespace

void copy_grid(const Grid& grid) {
  switch (grid.bytes) {
    case 1:
      copy_in_tiles(grid, KnownRow<1>{});
      return;
    case 2:
      copy_in_tiles(grid, KnownRow<2>{});
      return;
    case 4:
      copy_in_tiles(grid, KnownRow<4>{});
      return;
    case 8:
      copy_in_tiles(grid, KnownRow<8>{});
      return;
    case 12:
      copy_in_tiles(grid, KnownRow<12>{});
      return;
    case 16:
      copy_in_tiles(grid, KnownRow<16>{});
      return;
    case 24:
      copy_in_tiles(grid, KnownRow<24>{});
      return;
    case 32:
      copy_in_tiles(grid, KnownRow<32>{});
      return;
    case 48:
      copy_in_tiles(grid, KnownRow<48>{});
      return;
    case 64:
      copy_in_tiles(grid, KnownRow<64>{});
      return;
    case 128:
      copy_in_tiles(grid, KnownRow<128>{});
      return;
    case 256:
      copy_in_tiles(grid, KnownRow<256>{});
      return;
    default:
      copy_in_tiles(grid, AnyRow{grid.bytes});
  }
}

}  // namespace headroom::direct
