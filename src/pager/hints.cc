// The program's hints about its memory; see pager.h. Hints change what is moved and when, never content; only a range that will
// be overwritten loses it, and even there blocks that it covers in part keep theirs.
#include "pager/block_ranges.h"
#include "pager/requests.h"
#include "pager/state.h"

namespace headroom::pager {
namespace {

void ask(RequestKind kind, uint64_t first, uint64_t count) {
  Request request = {};
  request.kind = kind;
  request.block = first;
  request.count = count;
  perform(request);
}

void ask_for_all(RequestKind kind, const void* address, uint64_t bytes) {
  if (is_armed()) {  // else all of it is here
    for_each_range(address, bytes, [kind](BlockRange range, uintptr_t, uint64_t) { ask(kind, range.first, range.count); });
  }
}

/// Calls `function` with the first and the number of blocks that lie in the range whole, once for each run of them.
template <typename Function>
void for_each_whole_run(const void* address, uint64_t bytes, Function function) {
  for_each_range(address, bytes, [function](BlockRange range, uintptr_t at, uint64_t used) {
    const auto is_whole = [=](uint64_t block) {
      const arena::View view = arena::view_of_block(partition(), block);
      return at <= view.address && view.address + view.bytes <= at + used;
    };
    uint64_t first = range.first;
    uint64_t end = range.first + range.count;
    first += is_whole(first) ? 0 : 1;
    end -= end > first && !is_whole(end - 1) ? 1 : 0;
    if (first < end) {
      function(first, end - first);
    }
  });
}

}  // namespace

void will_need(const void* address, uint64_t bytes) { ask_for_all(RequestKind::kWillNeed, address, bytes); }
void will_not_need(const void* address, uint64_t bytes) { ask_for_all(RequestKind::kWillNotNeed, address, bytes); }

void will_overwrite(const void* address, uint64_t bytes) {
  if (is_armed()) {
    for_each_whole_run(address, bytes, [](uint64_t first, uint64_t count) { ask(RequestKind::kWillOverwrite, first, count); });
  }
}

void will_fill(const void* address, uint64_t bytes) {
  if (bytes < arena::kBlockBytes || !is_armed()) {
    return;
  }
  for_each_whole_run(address, bytes, [](uint64_t first, uint64_t count) {
    for (uint64_t block = first; block < first + count; ++block) {
      if (arena::state_of(word_of(block).load(std::memory_order_relaxed)) == arena::kStored) {
        ask(RequestKind::kWillFill, block, first + count - block);
        return;
      }
    }
  });
}

}  // namespace headroom::pager
