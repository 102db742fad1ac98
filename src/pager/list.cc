// The list of resident blocks, oldest first; see state.h.
#include "pager/state.h"

namespace headroom::pager {

void list_append(uint64_t block) {
  const auto number = static_cast<uint32_t>(block);
  state.next[number] = kNoBlock;
  state.previous[number] = state.tail;
  if (state.tail != kNoBlock) {
    state.next[state.tail] = number;
  } else {
    state.head = number;
  }
  state.tail = number;
  state.boundary = state.boundary == kNoBlock ? number : state.boundary;
  ++state.listed;
}

void list_remove(uint64_t block) {
  const auto number = static_cast<uint32_t>(block);
  const uint32_t before = state.previous[number];
  const uint32_t after = state.next[number];
  (before != kNoBlock ? state.next[before] : state.head) = after;
  (after != kNoBlock ? state.previous[after] : state.tail) = before;
  state.boundary = state.boundary == number ? after : state.boundary;
  state.probation_count -= state.on_probation[number];
  state.on_probation[number] = 0;
  --state.listed;
}

uint32_t list_extend_probation() {
  const uint32_t block = state.boundary;
  if (block != kNoBlock) {
    state.boundary = state.next[block];
    state.on_probation[block] = 1;
    ++state.probation_count;
  }
  return block;
}

}  // namespace headroom::pager
