// Giving content that was read into a buffer its place in the arena, and mapping it.
#include "pager/placing.h"

#include "arena/whole_blocks.h"
#include "pager/block_words.h"
#include "pager/fatal_errors.h"
#include "pager/forked_children.h"
#include "pager/state.h"
#include "pager/streams.h"
#include "pager/waiting_accesses.h"
#include "trace/counters.h"

namespace headroom::pager {

using namespace arena;

namespace {

/// Whether the block does not go with its neighbours: it stays unmapped, or is mapped writable.
bool is_special(uint64_t block) {
  return (word_of(block).load(std::memory_order_relaxed) & kMarker) != 0 || has_waiting_writer(block);
}

}  // namespace

void place_content(uint64_t first, uint64_t count, const char* content) {
  for (uint64_t block = first; block < first + count;) {
    // With forked children the write comes later: the content of the block that they still need must be here before it can be
    // given to them.
    const bool expected = is_likely_written(block);
    const bool writable = (expected || has_waiting_writer(block)) && !has_fork_children();
    uint64_t run = (word_of(block).load(std::memory_order_relaxed) & kMarker) != 0 ? 0 : 1;
    while (run > 0 && (expected || !writable) && block + run < first + count && !is_special(block + run)) {
      ++run;
    }
    trace::count(trace::Counter::kBlocksReadWritable, expected && writable ? run : 0);
    uint64_t filled = 0;
    uint64_t left = run > 0 ? run : 1;
    const View view = view_of_run(*state.partition, block, left);
    if (run > 0) {
      filled = state.engine->fill(view, content, writable);
    }
    if (filled < view.bytes) {
      const uint64_t offset = block * kBlockBytes + filled;
      if (write_content(*state.partition, offset, content + filled, view.bytes - filled) != base::Status::kOk) {
        die_without_memory();
      }
      if (run > 0) {
        state.engine->map({view.address + filled, view.bytes - filled}, writable);
      }
    }
    if (run > 0) {
      for (uint64_t mapped = block; mapped < block + left; ++mapped) {
        change_word(word_of(mapped), 0, kMapped | (writable ? kDirty | kWritable : 0));
      }
    }
    block += left;
    content += left * kBlockBytes;
  }
}

}  // namespace headroom::pager
