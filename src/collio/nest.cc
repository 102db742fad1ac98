// See nest.h.
#include "collio/nest.h"

#include <string.h>

#include <algorithm>

#include "direct/strided_copy.h"

namespace headroom::collio {
namespace {

/// Bytes of the stream in one repetition of level `level`; of the whole for -1.
int64_t bytes_below(const Nest& nest, int64_t level) {
  int64_t bytes = nest.piece;
  for (int64_t each = level + 1; each < nest.levels; ++each) {
    bytes *= nest.level[each].count;
  }
  return bytes;
}

int64_t span_below(const Nest& nest, int64_t level) {
  int64_t span = nest.piece;
  for (int64_t each = level + 1; each < nest.levels; ++each) {
    span += (nest.level[each].count - 1) * nest.level[each].stride;
  }
  return span;
}

bool have_one_shape(const Nest& one, const Nest& other) {
  bool same = one.piece == other.piece && one.levels == other.levels;
  for (int64_t each = 0; same && each < one.levels; ++each) {
    same = one.level[each].count == other.level[each].count && one.level[each].stride == other.level[each].stride;
  }
  return same;
}

/// Without its outermost level.
Nest one_repetition(const Nest& nest) {
  Nest inner = nest;
  inner.levels = nest.levels - 1;
  std::copy(nest.level + 1, nest.level + nest.levels, inner.level);
  return inner;
}

bool fits(const Nest& nest, int64_t count, int64_t stride) {
  int64_t bytes = 0;
  int64_t reach = 0;
  int64_t end = 0;
  return !__builtin_mul_overflow(bytes_of(nest), count, &bytes) && !__builtin_mul_overflow(count - 1, stride, &reach) &&
         !__builtin_add_overflow(nest.first, span_of(nest), &end) && !__builtin_add_overflow(end, reach, &end);
}

/// Copies pieces one way or the other: whole pieces of the innermost level at once, where they are short.
template <typename Copy, typename CopyRow>
void copy_along(NestWalk& walk, int64_t bytes, Copy copy, CopyRow copy_row) {
  int64_t done = 0;
  while (done < bytes) {
    const int64_t whole = std::min(walk.pieces_ahead(), (bytes - done) / walk.piece());
    if (whole > 1 && walk.piece() <= static_cast<int64_t>(direct::kLongestPiece)) {
      copy_row(done, whole);
      done += whole * walk.piece();
      walk.pass_pieces(whole);
      continue;
    }
    const int64_t part = std::min(walk.left(), bytes - done);
    copy(done, part);
    done += part;
    walk.pass(part);
  }
}

}  // namespace

bool repeat(Nest& nest, int64_t count, int64_t stride) {
  if (count <= 0) {
    nest = {};
    return true;
  }
  if (count == 1 || nest.piece == 0) {
    return true;
  }
  if (!fits(nest, count, stride)) {
    return false;
  }
  if (nest.levels == 0 && stride == nest.piece) {
    nest.piece *= count;
    return true;
  }
  Level& outermost = nest.level[0];
  if (nest.levels > 0 && stride == outermost.count * outermost.stride) {
    outermost.count *= count;
    return true;
  }
  if (nest.levels == kMostLevels) {
    return false;
  }
  std::copy_backward(nest.level, nest.level + nest.levels, nest.level + nest.levels + 1);
  nest.level[0] = {count, stride};
  ++nest.levels;
  return true;
}

bool append(Nest& nest, const Nest& next) {
  if (next.piece == 0) {
    return true;
  }
  if (nest.piece == 0) {
    nest = next;
    return true;
  }
  if (nest.levels == 0 && next.levels == 0 && nest.first + nest.piece == next.first) {
    nest.piece += next.piece;
    return true;
  }
  // One more repetition of the outermost level, ...
  if (nest.levels > 0 && have_one_shape(one_repetition(nest), next) &&
      next.first == nest.first + nest.level[0].count * nest.level[0].stride) {
    ++nest.level[0].count;
    return true;
  }
  // ... or the second one of a new level.
  return have_one_shape(nest, next) && repeat(nest, 2, next.first - nest.first);
}

int64_t bytes_of(const Nest& nest) { return bytes_below(nest, -1); }

int64_t span_of(const Nest& nest) { return span_below(nest, -1); }

bool goes_forwards(const Nest& nest) {
  bool forwards = true;
  for (int64_t each = 0; forwards && each < nest.levels; ++each) {
    forwards = nest.level[each].stride >= span_below(nest, each);
  }
  return forwards;
}

int64_t bytes_before(const Nest& nest, int64_t position) {
  int64_t left = position - nest.first;
  if (left <= 0) {
    return 0;
  }
  int64_t below = bytes_of(nest);
  int64_t bytes = 0;
  for (int64_t each = 0; each < nest.levels; ++each) {
    const Level& level = nest.level[each];
    below /= level.count;
    const int64_t whole = std::min(left / level.stride, level.count - 1);
    bytes += whole * below;
    left -= whole * level.stride;
  }
  return bytes + std::min(left, nest.piece);
}

int64_t position_of(const Nest& nest, int64_t offset) { return NestWalk(nest, offset).position(); }

NestWalk::NestWalk(const Nest& nest, int64_t offset) : nest_(nest), position_(nest.first) {
  int64_t below = bytes_of(nest);
  for (int64_t each = 0; each < nest.levels; ++each) {
    below /= nest.level[each].count;
    index_[each] = offset / below;
    offset %= below;
    position_ += index_[each] * nest.level[each].stride;
  }
  position_ += offset;
  left_ = nest.piece - offset;
}

int64_t NestWalk::pieces_ahead() const {
  if (left_ != nest_.piece) {
    return 0;
  }
  return nest_.levels > 0 ? nest_.level[nest_.levels - 1].count - index_[nest_.levels - 1] : 1;
}

void NestWalk::pass_pieces(int64_t count) {
  if (nest_.levels > 0) {
    index_[nest_.levels - 1] += count - 1;
    position_ += (count - 1) * step();
  }
  pass(nest_.piece);
}

/// To the next piece; position_ is at the end of the one before.
void NestWalk::next() {
  position_ -= nest_.piece;
  left_ = nest_.piece;
  for (int64_t each = nest_.levels - 1; each >= 0; --each) {
    const Level& level = nest_.level[each];  // NOLINT(clang-analyzer-core.NullDereference): the nest has the array
    if (++index_[each] < level.count) {
      position_ += level.stride;
      return;
    }
    index_[each] = 0;
    position_ -= (level.count - 1) * level.stride;
  }
}

void scatter(NestWalk& walk, char* window, int64_t begin, const char* stream, int64_t bytes) {
  copy_along(
      walk, bytes,
      [&](int64_t done, int64_t part) { memcpy(window + (walk.position() - begin), stream + done, static_cast<size_t>(part)); },
      [&](int64_t done, int64_t whole) {
        const auto piece = static_cast<uint64_t>(walk.piece());
        direct::copy_grid({window + (walk.position() - begin),
                           stream + done,
                           piece,
                           {walk.step(), walk.piece(), static_cast<uint64_t>(whole)},
                           {0, 0, 1}});
      });
}

void gather(NestWalk& walk, const char* window, int64_t begin, char* stream, int64_t bytes) {
  copy_along(
      walk, bytes,
      [&](int64_t done, int64_t part) { memcpy(stream + done, window + (walk.position() - begin), static_cast<size_t>(part)); },
      [&](int64_t done, int64_t whole) {
        const auto piece = static_cast<uint64_t>(walk.piece());
        direct::copy_grid({stream + done,
                           window + (walk.position() - begin),
                           piece,
                           {walk.piece(), walk.step(), static_cast<uint64_t>(whole)},
                           {0, 0, 1}});
      });
}

}  // namespace headroom::collio
