// Huge pages, from "memory is enough" to "memory is short". While it is enough the kernel makes them as it likes, where
// let_have_huge_pages() gave leave. When it is short, memory is watched, evicted and given up in blocks, and a huge page stands
// in the way: a part of it that is punched while anybody has a page of it pinned is zeroed and not freed; and splitting it
// takes all of it out of every page table, blocks that a thread counts on among them. So
//
//   arming        maps what there is in small pages and has the kernel split the huge ones, before anything is watched; it
//                 leaves those that other processes map, too
//   the pager     splits such a page before the first of its blocks is written out or given up, when that is safe, and maps the
//                 others again
//
// The kernel splits a page as a side effect of two requests: advice that a part of it is cold, unless other processes map it;
// and punching less than a page out of it, which zeroes these bytes: we punch one byte that is zero already. Since Linux 6.15
// the second leaves halves, quarters and eighths, for which the first is then tried (nobody maps them at that moment).
#include "pager/huge_pages.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/kernel_abi.h"
#include "base/kernel_version.h"
#include "pager/block_words.h"
#include "pager/first_touch.h"
#include "pager/page_table.h"
#include "pager/pager.h"
#include "pager/state.h"
#include "pager/transition_lock.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using namespace arena;
using base::system_call;
using trace::Counter;

constexpr uint64_t kBlocks = kHugePageBytes / kBlockBytes;

/// Whether the page is in the page table. Where it cannot be known it counts as being there: nothing is then taken for split.
bool is_in_page_table(uintptr_t address) {
  uint64_t entry = 0;
  return !read_page_table(address, entry) || (entry & kPagePresent) != 0;
}

void advise_cold(uintptr_t page) {
  (void)*reinterpret_cast<volatile char*>(page);  // the kernel looks at pages in the page table
  (void)system_call(SYS_madvise, page, kPageBytes, MADV_COLD);
}

long next_of(int what, uint64_t offset) { return system_call(SYS_lseek, state.partition->descriptor, offset, what); }

/// Whether this part of the file is one huge page: mapped anew, a touch of one end then maps the other.
bool is_huge(uint64_t offset) {
  static char* reserved = static_cast<char*>(base::reserve_memory(2 * kHugePageBytes));
  if (reserved == nullptr) {
    return true;
  }
  if (next_of(SEEK_DATA, offset) != static_cast<long>(offset)) {
    return false;  // and a touch would fill the hole
  }
  const uintptr_t window = (reinterpret_cast<uintptr_t>(reserved) + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  const long mapped = system_call(SYS_mmap, window, kHugePageBytes, PROT_READ, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                                  state.partition->descriptor, offset);
  if (base::is_error(mapped)) {
    return true;
  }
  (void)system_call(SYS_madvise, window, kHugePageBytes, MADV_DONTFORK);
  (void)*reinterpret_cast<volatile char*>(window);
  const bool huge = is_in_page_table(window + kHugePageBytes / 2);
  (void)system_call(SYS_madvise, window, kHugePageBytes, MADV_DONTNEED);  // or it would count as a process that maps it
  advise_small_pages(window, kHugePageBytes);                             // or the kernel might make one of it by itself
  return huge;
}

/// Maps what there is of [from, to) anew, in small pages; whether there is something and all of it is here.
bool map_anew(uint64_t from, uint64_t to) {
  const long first = next_of(SEEK_DATA, from);
  if (base::is_error(first) || static_cast<uint64_t>(first) >= to) {
    return false;
  }
  (void)system_call(SYS_madvise, state.partition->base + from, to - from, MADV_DONTNEED);
  for (uint64_t at = from; at < to;) {
    const long data = next_of(SEEK_DATA, at);
    if (base::is_error(data) || static_cast<uint64_t>(data) >= to) {
      break;
    }
    const long hole = next_of(SEEK_HOLE, static_cast<uint64_t>(data));
    const uint64_t end = base::is_error(hole) || static_cast<uint64_t>(hole) > to ? to : static_cast<uint64_t>(hole);
    (void)system_call(SYS_madvise, state.partition->base + data, end - static_cast<uint64_t>(data), MADV_POPULATE_READ);
    at = end;
  }
  const long hole = next_of(SEEK_HOLE, from);
  return base::is_error(hole) || static_cast<uint64_t>(hole) >= to;  // else a part is missing, so it is no huge page
}

/// While nothing is watched. Whether it still is a huge page.
bool stays_huge(uint64_t from) {
  if (!map_anew(from, from + kHugePageBytes) || !is_huge(from)) {
    return false;
  }
  // The program may not read all of its memory, but we may, at the alias.
  advise_cold(state.partition->alias + from);
  (void)map_anew(from, from + kHugePageBytes);  // splitting has taken it out of the page table
  const bool huge = is_huge(from);
  trace::count(Counter::kHugePagesSplit, huge ? 0 : 1);
  return huge;
}

/// Whether the program's side of all blocks has to be taken away first: where the kernel's accesses are not served, nobody may
/// meet a page that is missing for a moment.
bool must_take_all() { return !state.engine->serves_kernel() && state.engine->kind() != base::EngineChoice::kSigsegv; }

/// From RESIDENT to WRITING and unmapped, so that every other thread asks the pager for it; false if it is held. `before` is
/// the word as it was.
bool take(uint64_t block, uint64_t& before) {
  BlockWord& word = word_of(block);
  before = word.load(std::memory_order_acquire);
  do {
    if ((before & kHoldMask) != 0 || state_of(before) != kResident) {
      return false;
    }
  } while (!word.compare_exchange_weak(before, (before & ~(kStateMask | kMapped | kWritable)) | kWriting,
                                       std::memory_order_acq_rel));
  return true;
}

void give_back(uint64_t block, uint64_t before) {
  change_word(word_of(block), kStateMask, kResident | (before & (kMapped | kWritable)));
}

/// Makes the kernel split the huge page that the block, which nobody can touch, is a part of; false if it does not.
bool make_kernel_split(uint64_t block) {
  const uintptr_t memory = state.partition->alias + block * kBlockBytes;
  advise_cold(memory + kPageBytes);
  if (!is_in_page_table(memory + kPageBytes)) {
    return true;
  }
  // Not in the first page: punching a part of a file's first page unmaps all of the file.
  const void* zero = memchr(reinterpret_cast<const void*>(memory + kPageBytes), 0, kBlockBytes - kPageBytes);
  if (zero == nullptr && state.engine->serves_kernel()) {
    return false;  // a peer that reads by cross-memory attach would see a zero for a moment
  }
  const uintptr_t at = zero != nullptr ? reinterpret_cast<uintptr_t>(zero) : memory + kPageBytes;
  auto* byte = reinterpret_cast<volatile char*>(at);
  const char there = *byte;
  punch_bytes(*state.partition, at - state.partition->alias, 1);
  const bool is_split = !is_in_page_table(at);
  if (there != 0) {
    *byte = there;
  }
  const uintptr_t first = memory / kHugePageBytes * kHugePageBytes;
  for (uint64_t other = 0; is_split && other < kBlocks; ++other) {
    advise_cold(first + other * kBlockBytes);
  }
  return is_split;
}

/// The state of one block before split() took it.
struct Taken {
  bool taken;
  uint64_t before;
};

/// Gives the blocks back that were taken; `lost`: all have lost their pages in the page table, and are mapped again as their
/// words say. Else only `hidden` is.
void end_taking(uint64_t first, const Taken* taken, bool lost, uint64_t hidden) {
  const bool only_taken = state.engine->kind() == base::EngineChoice::kSigsegv;  // rights are not lost
  for (uint64_t index = 0; index < kBlocks; ++index) {
    const uint64_t block = first + index;
    const uint64_t word = taken[index].taken ? taken[index].before : word_of(block).load(std::memory_order_acquire);
    const bool to_be_mapped = block == hidden || (lost && (taken[index].taken || !only_taken));
    if (to_be_mapped && (word & kMapped) != 0) {
      state.engine->map(view_of_block(*state.partition, block), (word & kWritable) != 0);
    }
    if (taken[index].taken) {
      give_back(block, word);
    }
  }
}

enum class Outcome { kSplit, kNotSplit, kInUse };

Outcome split(uint64_t block) {
  const uint64_t first = block / kBlocks * kBlocks;
  Taken taken[kBlocks] = {};
  bool all = true;
  for (uint64_t index = 0; index < kBlocks && all; ++index) {
    const bool is_wanted = first + index == block || must_take_all();
    if (is_wanted && state_of(word_of(first + index).load(std::memory_order_acquire)) == kResident) {
      taken[index].taken = take(first + index, taken[index].before);
      all = taken[index].taken;
    }
  }
  if (!all) {
    end_taking(first, taken, false, kNoBlock);
    return Outcome::kInUse;
  }
  const View view = view_of_block(*state.partition, block);
  state.engine->hide(view);
  const bool written = is_written_remotely(view);
  const bool is_split = !written && make_kernel_split(block);
  end_taking(first, taken, is_split, block);
  return is_split ? Outcome::kSplit : written ? Outcome::kInUse : Outcome::kNotSplit;
}

}  // namespace

bool may_have_huge_pages() {
  return can_read_page_table() && (state.engine->serves_kernel() || base::kernel_is_at_least(6, 12));
}

void map_in_small_pages() {
  if (state.partition->huge_pages == HugePages::kNowhere) {
    return;
  }
  const uint64_t committed = state.partition->committed.load(std::memory_order_relaxed);
  arena::let_have_huge_pages(state.partition->base, committed, false);
  for (uint64_t at = 0; at + kHugePageBytes <= committed; at += kHugePageBytes) {
    std::atomic<bool>& may_be_huge = state.may_be_huge[at / kHugePageBytes];
    if (may_be_huge.load(std::memory_order_relaxed)) {
      may_be_huge.store(stays_huge(at), std::memory_order_relaxed);
    }
  }
}

bool set_apart(uint64_t block) {
  std::atomic<bool>& may_be_huge = state.may_be_huge[block / kBlocks];
  if (!may_be_huge.load(std::memory_order_relaxed) || state_of(word_of(block).load(std::memory_order_acquire)) != kResident) {
    return true;
  }
  const bool huge = is_huge(block / kBlocks * kHugePageBytes);
  const Outcome outcome = huge ? split(block) : Outcome::kSplit;
  if (outcome == Outcome::kInUse || (outcome == Outcome::kNotSplit && must_take_all())) {
    return false;
  }
  // Where the kernel's accesses are served (or met by the kernel itself) a page that cannot be split costs memory, nothing
  // else.
  may_be_huge.store(false, std::memory_order_relaxed);
  trace::count(Counter::kHugePagesSplit, huge && outcome == Outcome::kSplit ? 1 : 0);
  return true;
}

void forget_huge_pages(uint64_t first, uint64_t count) {
  for (uint64_t page = (first + kBlocks - 1) / kBlocks; (page + 1) * kBlocks <= first + count; ++page) {
    state.may_be_huge[page].store(false, std::memory_order_relaxed);
  }
}

void let_have_huge_pages(const void* address, uint64_t bytes, bool may) {
  constexpr uint64_t kSize = kHugePageBytes;
  const uint64_t begin = reinterpret_cast<uintptr_t>(address) - partition().base;
  // The leave ends with the memory that it was given for: a huge page would fill memory that nobody has claimed.
  const uint64_t first = may ? (begin + kSize - 1) / kSize : begin / kSize;
  const uint64_t last = may ? (begin + bytes) / kSize : (begin + bytes + kSize - 1) / kSize;
  const uint64_t committed = partition().committed.load(std::memory_order_acquire) / kSize;
  const uint64_t end = std::min(last, committed);
  if (first >= end || partition().huge_pages == HugePages::kNowhere) {
    return;
  }
  // Looked at before the lock, which costs two system calls: only the memory's owner lets its pages be huge.
  bool some = may;
  for (uint64_t page = first; page < end && !some; ++page) {
    some = state.may_be_huge[page].load(std::memory_order_relaxed);
  }
  if (!some) {
    return;
  }
  const TransitionHolder lock;
  if (may) {
    forget_first_touch(begin, bytes, false);
  }
  if (is_armed()) {
    return;
  }
  trace::count(trace::Counter::kHugeBytesAsked, may ? (end - first) * kSize : 0);
  arena::let_have_huge_pages(partition().base + first * kSize, (end - first) * kSize, may);
  for (uint64_t page = first; may && page < end; ++page) {
    state.may_be_huge[page].store(true, std::memory_order_relaxed);  // for good: it may be one when it may no longer become one
  }
}

}  // namespace headroom::pager
