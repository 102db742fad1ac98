// Patterns: where the bytes of a datatype lie, a nest if it can be one and else a list of pieces; what a file view is made of.
//
// A pattern is put together from the inside out, as MPI's constructors say: runs, and other patterns repeated. It becomes a
// list only when its parts are no nest any more. Thread-safe as far as each pattern is one thread's.
#pragma once

#include <cstdint>

#include "collio/nest.h"
#include "collio/piece_list.h"

namespace headroom::collio {

struct Pattern {
  Nest nest;                  // unless there is a list
  PieceList* list = nullptr;  // owned
  bool failed = false;        // it goes backwards, or there was no memory
};

/// `bytes` bytes at `offset` come next.
void add_run(Pattern& into, int64_t offset, int64_t bytes);
/// `element` comes next, `count` times, `stride` bytes apart, from `offset` on.
void add_elements(Pattern& into, const Pattern& element, int64_t offset, int64_t count, int64_t stride);
/// After the last one: whether it can be the pattern of a file view, elements `extent` apart. It goes forwards, no byte twice.
bool end_pattern(Pattern& pattern, int64_t extent);
int64_t bytes_of(const Pattern& pattern);
/// How many pieces it has.
int64_t pieces_of(const Pattern& pattern);
/// Makes it empty, and gives its memory back.
void clear(Pattern& pattern);

}  // namespace headroom::collio
