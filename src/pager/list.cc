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
  ++state.listed;
}

void list_remove(uint64_t block) {
  const auto number = static_cast<uint32_t>(block);
  const uint32_t before = state.previous[number];
  const uint32_t after = state.next[number];
  (before != kNoBlock ? state.next[before] : state.head) = after;
  (after != kNoBlock ? state.previous[after] : state.tail) = before;
  --state.listed;
}

}  // namespace headroom::pager
