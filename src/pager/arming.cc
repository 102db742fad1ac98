// From "memory is enough" to "memory is short"; see pager.h.
//
// Order matters. First the engine watches the views, so that a page that is touched for the first time from now on is
// noticed; then the populated pages are listed (by the memfd's own map of data and holes: nothing is read, nothing faults);
// then the reservation shrinks to what is resident. Every block that is populated counts as dirty: nobody watched it before.
// A partly populated block is filled up with zeros, so that "resident" always means the whole block; one with few pages becomes
// a hollow block (hollow_blocks.h).
#include "pager/arming.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "pager/first_touch.h"
#include "pager/hollow_blocks.h"
#include "pager/huge_pages.h"
#include "pager/other_memory.h"
#include "pager/present_pages.h"
#include "pager/state.h"
#include "pager/touched.h"
#include "trace/recorder.h"

namespace headroom::pager {
namespace {

using namespace arena;

/// Whether the access rights of this block's view are the program's affair: where rights are how memory is watched, mprotect()
/// has pinned it.
bool keeps_its_rights(uint64_t block) {
  return state.engine->kind() == base::EngineChoice::kSigsegv &&
         (word_of(block).load(std::memory_order_acquire) & kPinned) != 0;
}

/// Whether list_held() has listed the block, or it is pinned. Where rights are how memory is watched, it then keeps them: the
/// kernel is at work there.
bool is_listed_already(uint64_t block) {
  return keeps_its_rights(block) || state_of(word_of(block).load(std::memory_order_acquire)) == kResident;
}

void cover_view(uint64_t from, uint64_t to) {
  if (from < to && state.engine->cover({state.partition->base + from, to - from}) != base::Status::kOk) {
    base::die("the fault engine cannot watch this process's memory; try another --engine");
  }
}

void cover_views(uint64_t from, uint64_t to) {
  uint64_t begin = from;
  for (uint64_t at = from; at < to; at += kBlockBytes) {
    if (is_listed_already(block_of(at))) {
      cover_view(begin, at);
      begin = at + kBlockBytes;
    }
  }
  cover_view(begin, to);
}

/// Returns the bytes of memory that were listed and were not before; so do the next ones.
int64_t list_resident(uint64_t first, uint64_t count) {
  int64_t bytes = 0;
  for (uint64_t block = first; block < first + count; ++block) {
    const uint64_t word = word_of(block).load(std::memory_order_relaxed);
    if (state_of(word) != kFresh) {
      continue;
    }
    if (populate(*state.partition, block, 1) != base::Status::kOk) {
      base::die("the kernel has no memory left; lower --memory");
    }
    word_of(block).fetch_or(kResident | kDirty, std::memory_order_acq_rel);
    state.resident.loaded(block);
    bytes += static_cast<int64_t>(kBlockBytes);
  }
  for (uint64_t block = first; block < first + count;) {
    uint64_t run = 1;
    while (!keeps_its_rights(block) && block + run < first + count && !keeps_its_rights(block + run)) {
      ++run;
    }
    const View view = view_of_run(*state.partition, block, run);
    if (!state.engine->serves_kernel() && !(run == 1 && keeps_its_rights(block))) {
      state.engine->map(view, true);  // sigsegv: give access back; user mode: no page may be left to a kernel access
    }
    // Said afterwards: a thread that holds a block that is said to be mapped hands it to the kernel at once.
    for (uint64_t mapped = block; mapped < block + run; ++mapped) {
      word_of(mapped).fetch_or(kMapped | kWritable, std::memory_order_acq_rel);
    }
    block += run;
  }
  return bytes;
}

/// Where the first populated bytes of [from, to) begin and end; false if there are none.
bool find_populated(uint64_t from, uint64_t to, uint64_t& begin, uint64_t& end) {
  const long data = base::system_call(SYS_lseek, state.partition->descriptor, from, 3 /* SEEK_DATA */);
  if (base::is_error(data) || static_cast<uint64_t>(data) >= to) {
    return false;
  }
  const long hole = base::system_call(SYS_lseek, state.partition->descriptor, data, 4 /* SEEK_HOLE */);
  begin = static_cast<uint64_t>(data);
  end = base::is_error(hole) ? to : std::min(static_cast<uint64_t>(hole), to);
  return true;
}

uint64_t populated_pages(uint64_t block) {
  uint64_t found = 0;
  uint64_t begin = 0;
  const uint64_t to = (block + 1) * kBlockBytes;
  for (uint64_t end = block * kBlockBytes; find_populated(end, to, begin, end);) {
    for (uint64_t at = begin; at < end; at += kPageBytes) {
      found |= bit_of(static_cast<uint32_t>(at % kBlockBytes / kPageBytes));
    }
  }
  return found;
}

/// Lists a block of which a part is populated. It may become a hollow one if the populated block before it has few pages, too:
/// the end of an allocation alone is not worth room on storage. `after_sparse` says that, and is updated.
int64_t list_partly_populated(uint64_t block, bool& after_sparse) {
  const uint64_t populated = populated_pages(block);
  const bool may_be_hollow = after_sparse;
  after_sparse = has_few_pages(populated);
  return may_be_hollow && list_as_hollow(block, populated) ? bytes_of(populated) : list_resident(block, 1);
}

/// Lists the blocks of [from, to) that have a populated page.
int64_t list_populated(uint64_t from, uint64_t to) {
  int64_t bytes = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
  bool after_sparse = false;
  for (uint64_t at = from; at < to && find_populated(at, to, begin, end);) {
    uint64_t first = block_of(begin);
    if (begin % kBlockBytes != 0 || end < (first + 1) * kBlockBytes) {
      bytes += list_partly_populated(first, after_sparse);
      ++first;
    }
    const uint64_t past = std::max(block_of(end), first);
    if (past > first) {
      bytes += list_resident(first, past - first);
      after_sparse = false;
    }
    at = std::max(past * kBlockBytes, end);
    if (at % kBlockBytes != 0) {  // another one begins
      bytes += list_partly_populated(block_of(at), after_sparse);
      at = (block_of(at) + 1) * kBlockBytes;
    }
  }
  return bytes;
}

/// Lists the blocks that the kernel, or a peer, may be at work on, so that no page of them is missing. A thread that holds from
/// now on waits until this process is armed. Runs before list_populated(), which finds the blocks that a holder has written and
/// let go of meanwhile.
int64_t list_held() {
  int64_t bytes = 0;
  const uint64_t committed = state.partition->committed.load(std::memory_order_relaxed);
  for (uint64_t block = 0; block < committed / kBlockBytes; ++block) {
    if ((word_of(block).load(std::memory_order_acquire) & kHoldMask) != 0) {
      bytes += list_resident(block, 1);
    }
  }
  return bytes;
}

void watch_static_region(const StaticRegion& region) {
  uint64_t begin = 0;
  const auto cover_from_begin = [&](uint64_t end) {
    if (begin < end && state.engine->cover({region.address + begin, end - begin}) != base::Status::kOk) {
      base::die("the fault engine cannot watch the program's static data; use --static-data off");
    }
  };
  for (uint64_t at = 0; at < region.bytes; at += kBlockBytes) {
    if (is_listed_already(block_of(region.offset + at))) {
      cover_from_begin(at);
      begin = at + kBlockBytes;
    }
  }
  cover_from_begin(region.bytes);
}

}  // namespace

void cover_static_region(int index) {
  const StaticRegion& region = state.partition->static_regions[index];
  watch_static_region(region);
  const int64_t bytes = list_populated(region.offset, region.offset + region.bytes);
  // The content is there already, so its room is taken whether or not it is free; pump() then evicts the excess.
  node::take(*state.session->ledger, *state.session->self, bytes);
  count_touched();
}

void cover_new_memory() {
  const uint64_t committed = state.partition->committed.load(std::memory_order_relaxed);
  cover_views(state.covered, committed);
  state.covered = committed;
}

void arm(int64_t claimed_bytes) {
  if (state.armed) {
    return;
  }
  end_first_touch();
  map_in_small_pages();
  state.session->self->pager.arms.store(1, std::memory_order_relaxed);
  // A peer that holds blocks and does not see this is seen by list_held() (direct/peer_hold.cc).
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool rights_are_watched = state.engine->kind() == base::EngineChoice::kSigsegv;
  int64_t resident = 0;
  if (rights_are_watched) {
    resident += list_held();  // before rights are taken away
  }
  cover_new_memory();
  const int regions = state.partition->static_region_count.load(std::memory_order_relaxed);
  for (int index = 0; index < regions; ++index) {
    watch_static_region(state.partition->static_regions[index]);
  }
  if (!rights_are_watched) {
    resident += list_held();
  }
  resident += list_populated(0, state.partition->committed.load(std::memory_order_relaxed));
  node::Member& self = *state.session->self;
  state.armed = true;
  node::release(*state.session->ledger, self, claimed_bytes - resident);
  reserve_other_memory();
  count_touched();
  self.pager.armed.store(1, std::memory_order_release);
  trace::record({base::monotonic_ns(), trace::EventKind::kArmed, 0, 0, {}});
  base::log_info(base::Part::kPager, "memory is short; %lld MiB resident", static_cast<long long>(resident >> 20));
}

}  // namespace headroom::pager
