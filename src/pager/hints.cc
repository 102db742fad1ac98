// What the program says of its memory: see pager.h. Hints change what is moved and when, never content; but for a range that
// will be overwritten, and even there blocks that it covers in part keep theirs.
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

}  // namespace

void will_need(const void* address, uint64_t bytes) { ask_for_all(RequestKind::kWillNeed, address, bytes); }
void will_not_need(const void* address, uint64_t bytes) { ask_for_all(RequestKind::kWillNotNeed, address, bytes); }

void will_overwrite(const void* address, uint64_t bytes) {
  if (!is_armed()) {
    return;
  }
  for_each_range(address, bytes, [](BlockRange range, uintptr_t at, uint64_t used) {
    // The first and the last block may lie in the range in part only.
    const auto is_whole = [=](uint64_t block) {
      const arena::View view = arena::view_of_block(partition(), block);
      return at <= view.address && view.address + view.bytes <= at + used;
    };
    uint64_t first = range.first;
    uint64_t end = range.first + range.count;
    first += is_whole(first) ? 0 : 1;
    end -= end > first && !is_whole(end - 1) ? 1 : 0;
    if (first < end) {
      ask(RequestKind::kWillOverwrite, first, end - first);
    }
  });
}

}  // namespace headroom::pager
