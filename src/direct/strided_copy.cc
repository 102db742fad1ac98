// See strided_copy.h.
#include "direct/strided_copy.h"

#include <cstring>

#include "direct/copy.h"

namespace headroom::direct {
namespace {

// A tile's side: with 16-byte pieces 16 rows of 256 bytes on either side, which a first-level cache holds whatever the stride.
constexpr uint64_t kTile = 16;

template <uint64_t kBytes>
void copy_row(char* to, const char* from, const Steps& steps) {
  for (uint64_t left = steps.count; left > 0; --left, to += steps.to, from += steps.from) {
    memcpy(to, from, kBytes);
  }
}

/// Of any length that is not among the usual ones.
void copy_row_of(uint64_t bytes, char* to, const char* from, const Steps& steps) {
  for (uint64_t left = steps.count; left > 0; --left, to += steps.to, from += steps.from) {
    copy_short(to, from, bytes);
  }
}

template <uint64_t kBytes>
void copy_rows(const Grid& grid) {
  if (grid.outer.count == 1) {
    copy_row<kBytes>(grid.to, grid.from, grid.inner);
    return;
  }
  for (uint64_t row = 0; row < grid.outer.count; row += kTile) {
    const uint64_t rows = grid.outer.count - row < kTile ? grid.outer.count - row : kTile;
    for (uint64_t column = 0; column < grid.inner.count; column += kTile) {
      const uint64_t columns = grid.inner.count - column < kTile ? grid.inner.count - column : kTile;
      char* to = grid.to + static_cast<int64_t>(row) * grid.outer.to + static_cast<int64_t>(column) * grid.inner.to;
      const char* from =
          grid.from + static_cast<int64_t>(row) * grid.outer.from + static_cast<int64_t>(column) * grid.inner.from;
      for (uint64_t left = rows; left > 0; --left, to += grid.outer.to, from += grid.outer.from) {
        copy_row<kBytes>(to, from, {grid.inner.to, grid.inner.from, columns});
      }
    }
  }
}

}  // namespace

void copy_grid(const Grid& grid) {
  switch (grid.bytes) {
    case 4:
      copy_rows<4>(grid);
      return;
    case 8:
      copy_rows<8>(grid);
      return;
    case 16:
      copy_rows<16>(grid);
      return;
    case 24:
      copy_rows<24>(grid);
      return;
    case 32:
      copy_rows<32>(grid);
      return;
    case 64:
      copy_rows<64>(grid);
      return;
    case 128:
      copy_rows<128>(grid);
      return;
    case 256:
      copy_rows<256>(grid);
      return;
    default:
      for (uint64_t row = 0; row < grid.outer.count; ++row) {
        copy_row_of(grid.bytes, grid.to + static_cast<int64_t>(row) * grid.outer.to,
                    grid.from + static_cast<int64_t>(row) * grid.outer.from, grid.inner);
      }
  }
}

}  // namespace headroom::direct
