// The part of the memory that can move that has been touched: --memory must hold so much for nothing to move. (Allocated memory
// may be many times as much.) While memory is watched it is known to a block, since first touches fault, and of hollow blocks
// (hollow_blocks.h) to a page. While it is enough nobody sees them; but the memory of the partition's file only grows until
// something is given up, so a look just before that, at each large allocation, when memory becomes short, and at the end finds
// the most there ever was. Memory that was set aside ahead of the program (first_touch.cc) counts, too: 24 MiB of an allocation
// at most.
#include "pager/touched.h"

#include <sys/stat.h>

#include "pager/pager.h"
#include "pager/state.h"
#include "pager/untouched_pages.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

void note(uint64_t bytes) {
  trace::set(trace::Counter::kTouchedBytes, bytes);
  trace::count_peak(trace::Counter::kTouchedBytesPeak, bytes);
}

}  // namespace

void count_touched() { note(state.resident.known() * arena::kBlockBytes - untouched_bytes()); }

void note_touched() {
  struct stat file = {};
  if (is_running() && !is_armed() && !is_forked_child() &&
      !base::is_error(base::system_call(SYS_fstat, state.partition->descriptor, &file))) {
    constexpr uint64_t kUnit = 512;
    note(static_cast<uint64_t>(file.st_blocks) * kUnit);
  }
}

}  // namespace headroom::pager
