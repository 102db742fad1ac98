// See pattern.h.
#include "collio/pattern.h"

#include <stdlib.h>

#include <new>

namespace headroom::collio {
namespace {

bool become_list(Pattern& pattern) {
  if (pattern.list == nullptr) {
    void* memory = malloc(sizeof(PieceList));
    if (memory == nullptr) {
      return false;
    }
    pattern.list = new (memory) PieceList;
    if (!pattern.list->add(pattern.nest)) {
      return false;
    }
    pattern.nest = {};
  }
  return true;
}

void add_nest(Pattern& into, const Nest& nest) {
  if (into.list == nullptr && append(into.nest, nest)) {
    return;
  }
  into.failed = into.failed || !become_list(into) || !into.list->add(nest);
}

}  // namespace

void add_run(Pattern& into, int64_t offset, int64_t bytes) {
  if (bytes > 0) {
    add_nest(into, Nest{.first = offset, .piece = bytes, .levels = 0, .level = {}});
  }
}

void add_elements(Pattern& into, const Pattern& element, int64_t offset, int64_t count, int64_t stride) {
  into.failed = into.failed || element.failed;
  if (into.failed || count <= 0 || bytes_of(element) == 0) {
    return;
  }
  Nest nest = element.nest;
  nest.first += offset;
  if (element.list == nullptr && repeat(nest, count, stride)) {
    add_nest(into, nest);
    return;
  }
  for (int64_t index = 0; index < count && !into.failed; ++index) {
    if (element.list == nullptr) {
      add_nest(into, nest);
      nest.first += stride;
    } else {
      PieceList* list = element.list;
      (void)list->end_list();
      into.failed = !become_list(into) || !into.list->add(*list, offset + index * stride);
    }
  }
}

bool end_pattern(Pattern& pattern, int64_t extent) {
  if (pattern.list != nullptr) {
    const PieceList& list = *pattern.list;
    pattern.failed = pattern.failed || !pattern.list->end_list() || list.end() - list.first() > extent;
  } else if (pattern.nest.piece > 0) {
    pattern.failed = pattern.failed || !goes_forwards(pattern.nest) || span_of(pattern.nest) > extent;
  }
  return !pattern.failed;
}

int64_t bytes_of(const Pattern& pattern) { return pattern.list != nullptr ? pattern.list->bytes() : bytes_of(pattern.nest); }

int64_t pieces_of(const Pattern& pattern) {
  if (pattern.list != nullptr) {
    return pattern.list->pieces();
  }
  int64_t pieces = 1;
  for (int64_t level = 0; level < pattern.nest.levels; ++level) {
    pieces *= pattern.nest.level[level].count;  // no more than it has bytes
  }
  return pieces;
}

void clear(Pattern& pattern) {
  if (pattern.list != nullptr) {
    pattern.list->~PieceList();
    free(pattern.list);
  }
  pattern = {};
}

}  // namespace headroom::collio
