// See fork_copies.h.
#include "pager/fork_copies.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "arena/whole_blocks.h"
#include "base/log.h"
#include "pager/block_words.h"
#include "pager/ended_transfers.h"
#include "pager/fatal_errors.h"
#include "pager/fork_content.h"
#include "pager/forked_children.h"
#include "pager/present_pages.h"
#include "pager/state.h"
#include "pager/untouched_pages.h"
#include "trace/counters.h"

namespace headroom::pager {

using namespace arena;
using trace::Counter;

void forget_after(Child& child, long error) {
  if (error != -ESRCH && child.fault_descriptor >= 0) {
    base::log_warning("memory could not be given to a forked child (%s), so it is killed", strerror(static_cast<int>(-error)));
    forget_child(child, false);
  } else {
    forget_child(child);
  }
}

/// The pages of the block that have no memory and are zero on storage.
uint64_t pages_without_content(uint64_t block) {
  const uint64_t now = state_of(word_of(block).load(std::memory_order_acquire));
  const uint64_t absent = now == kStored ? kAllPages : now == kSinglePages ? ~pages_of(block).present : 0;
  return zero_pages_on_storage(block, absent);
}

/// Copies some pages of it, all of them from `source`, or zeros. Returns 0, or the first error.
long copy_pages(Child& child, uint64_t block, uint64_t pages, const char* source) {
  long error = 0;
  for_each_run(pages, [&](uint32_t first, uint32_t count) {
    const uint64_t bytes = count * kPageBytes;
    const bool is_zero = source == zeros_for_children();
    const char* from = is_zero ? source : source + first * kPageBytes;
    const long failed = copy_to_child(child.fault_descriptor, view_of_page(block, first).address, from, bytes);
    error = error != 0 ? error : failed;
  });
  return error;
}

bool copy_block(Child& child, uint64_t block, const char* source) {
  const View view = view_of_block(*state.partition, block);
  const uint64_t zero = pages_without_content(block);
  long error = 0;
  if (zero == 0 || source == zeros_for_children()) {
    error = copy_to_child(child.fault_descriptor, view.address, source, view.bytes);
  } else {  // a page that is zero costs the child nothing
    error = copy_pages(child, block, ~zero, source);
    error = error != 0 ? error : copy_pages(child, block, zero, zeros_for_children());
  }
  if (error != 0) {
    forget_after(child, error);
  }
  return error == 0;
}

const char* content_of(uint64_t block) {
  while (state_of(word_of(block).load(std::memory_order_acquire)) == kReading) {
    if (!collect_transfers()) {
      pollfd waiting = {state.store->descriptor(), POLLIN, 0};
      (void)base::system_call(SYS_ppoll, &waiting, 1, nullptr, nullptr, 8);
    }
  }
  switch (state_of(word_of(block).load(std::memory_order_acquire))) {
    case kFresh:
      return zeros_for_children();
    case kSinglePages:
      if (pages_of(block).present == kAllPages) {
        break;  // it may never have been stored
      }
      return read_content_back(block);
    case kStored:
      return read_content_back(block);
    default:
      break;
  }
  return reinterpret_cast<const char*>(state.partition->alias + block * kBlockBytes);
}

void give_copy(Child& child, uint64_t block) {
  const char* source = bit(child.zero, block) ? zeros_for_children() : content_of(block);
  if (!child.used || bit(child.given, block)) {
    return;  // waiting for a transfer has served others, this child perhaps among them
  }
  if (copy_block(child, block, source)) {
    set_bit(child.given, block);
    trace::count(Counter::kForkBlocksCopied);
  }
}

bool give_children_copies(uint64_t block) {
  for (Child& child : forked_children) {
    if (lacks(child, block) && child.fault_descriptor < 0) {
      return false;  // forked a moment ago; goes on when it has said hello or is gone
    }
  }
  if (is_shared(block)) {
    return stop_sharing(block);
  }
  for (Child& child : forked_children) {
    if (lacks(child, block)) {
      give_copy(child, block);
    }
  }
  return true;
}

bool stop_sharing(uint64_t block) {
  const uint64_t word = word_of(block).load(std::memory_order_acquire);
  if ((word & kShared) == 0) {
    return true;
  }
  bool may_be_mapped = false;  // one that has not said hello yet has mapped nothing, and is given the block later
  for (const Child& child : forked_children) {
    may_be_mapped = may_be_mapped || (lacks(child, block) && child.fault_descriptor >= 0);
  }
  if (!may_be_mapped) {  // all who did are gone, or have got it
    change_word(word_of(block), kShared, 0);
    return true;
  }
  if (state_of(word) == kWriting) {
    return false;
  }
  auto* const memory = reinterpret_cast<char*>(state.partition->alias + block * kBlockBytes);
  char* const moved = room_for_moved_content();
  memcpy(moved, memory, kBlockBytes);
  punch(*state.partition, block, 1);
  for (Child& child : forked_children) {
    if (lacks(child, block) && child.fault_descriptor >= 0 && copy_block(child, block, moved)) {
      set_bit(child.given, block);
      trace::count(Counter::kForkBlocksCopied);
    }
  }
  if (make_whole(*state.partition, block, {block, 1}) != base::Status::kOk) {
    die_without_memory();
  }
  memcpy(memory, moved, kBlockBytes);
  if ((word & kMapped) != 0) {
    state.engine->map(view_of_block(*state.partition, block), false);  // what was mapped is said to be
  }
  change_word(word_of(block), kShared, 0);  // last: until then holders ask
  return true;
}

}  // namespace headroom::pager
