// See coverage.h.
#include "collio/coverage.h"

#include <string.h>

#include <algorithm>
#include <numeric>

#include "base/system_calls.h"

namespace headroom::collio {

bool Coverage::open(int64_t bytes) {
  room_bytes_ = static_cast<uint64_t>(bytes / 64 + 2) * sizeof(uint64_t);
  words_ = static_cast<uint64_t*>(base::reserve_memory(room_bytes_));
  return words_ != nullptr;
}

void Coverage::close() {
  base::give_back_memory(words_, room_bytes_);
  words_ = nullptr;
}

void Coverage::begin(int64_t begin, int64_t end, int64_t unit) {
  begin_ = begin;
  unit_ = unit;
  units_ = (end - begin + unit - 1) / unit;
  memset(words_, 0, static_cast<size_t>(units_ / 64 + 1) * sizeof(uint64_t));
}

void Coverage::mark(int64_t position, int64_t bytes) {
  int64_t unit = (position - begin_) / unit_;
  const int64_t after = unit + bytes / unit_;
  while (unit < after) {
    const int64_t here = std::min<int64_t>(64 - unit % 64, after - unit);
    const uint64_t bits = here == 64 ? ~uint64_t{0} : ((uint64_t{1} << here) - 1) << (unit % 64);
    words_[unit / 64] |= bits;
    unit += here;
  }
}

void Coverage::mark(NestWalk walk, int64_t bytes) {
  while (bytes > 0) {
    const int64_t part = std::min(walk.left(), bytes);
    mark(walk.position(), part);
    bytes -= part;
    walk.pass(part);
  }
}

/// The first unit from `unit` on that is marked, or is not; units_ if there is none.
int64_t Coverage::find(int64_t unit, bool marked) const {
  while (unit < units_) {
    const uint64_t word = marked ? words_[unit / 64] : ~words_[unit / 64];
    const uint64_t ahead = word >> (unit % 64);
    if (ahead != 0) {
      return std::min(unit + __builtin_ctzll(ahead), units_);
    }
    unit += 64 - unit % 64;
  }
  return units_;
}

bool Coverage::is_full() const { return find(0, false) == units_; }

int64_t Coverage::stretches() const {
  int64_t count = 0;
  for (int64_t unit = find(0, true); unit < units_; unit = find(find(unit, false), true)) {
    ++count;
  }
  return count;
}

int64_t Coverage::last() const {
  for (int64_t word = units_ / 64; word >= 0; --word) {
    if (words_[word] != 0) {
      return begin_ + (word * 64 + 64 - __builtin_clzll(words_[word])) * unit_;
    }
  }
  return begin_;
}

bool Coverage::next_stretch(int64_t position, int64_t& begin, int64_t& end) const {
  const int64_t first = find((position - begin_) / unit_, true);
  if (first >= units_) {
    return false;
  }
  begin = begin_ + first * unit_;
  end = begin_ + find(first, false) * unit_;
  return true;
}

int64_t common_unit(int64_t so_far, const Nest& nest, int64_t from, int64_t until, int64_t begin) {
  int64_t unit = std::gcd(so_far, std::gcd(nest.piece, nest.first - begin));
  for (int64_t each = 0; each < nest.levels; ++each) {
    unit = std::gcd(unit, nest.level[each].stride);
  }
  return std::gcd(unit, std::gcd(from % nest.piece, until % nest.piece));  // it may begin and end within a piece
}

}  // namespace headroom::collio
