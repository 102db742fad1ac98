// Huge pages, from "memory is enough" to "memory is short". While it is enough the kernel makes them as it likes, where
// let_have_huge_pages() gave leave. When it is short, memory is watched, evicted and given up in blocks, and a huge page stands
// in the way: a part of it that is punched while anybody has a page of it pinned is zeroed and not freed; and splitting it
// takes all of it out of every page table, blocks that somebody counts on among them. So
//
//   arming        maps what there is in small pages (the pages themselves stay huge), before anything is watched
//   the pager     splits a huge page before the first of its blocks is written out or given up, when that is safe, and maps the
//                 others again
//
// The kernel splits a page as a side effect of two requests: advice that a part of it is cold, unless other processes map it,
// too; and punching less than a page out of it, which zeroes these bytes. We punch one byte that is zero already.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/kernel_abi.h"
#include "pager/state.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using namespace arena;
using base::system_call;
using trace::Counter;

constexpr uint64_t kBlocks = kHugePageBytes / kBlockBytes;
constexpr int kAdviceCold = 20;  // MADV_COLD, since Linux 5.4

long next_of(int what, uint64_t offset) { return system_call(SYS_lseek, state.partition->descriptor, offset, what); }

/// Maps what there is of [from, to) anew; false if there is nothing.
bool map_anew(uint64_t from, uint64_t to) {
  bool some = false;
  for (uint64_t at = from; at < to;) {
    const long data = next_of(SEEK_DATA, at);
    if (base::is_error(data) || static_cast<uint64_t>(data) >= to) {
      break;
    }
    if (!some) {
      (void)system_call(SYS_madvise, state.partition->base + from, to - from, MADV_DONTNEED);
    }
    some = true;
    const long hole = next_of(SEEK_HOLE, static_cast<uint64_t>(data));
    const uint64_t end = base::is_error(hole) || static_cast<uint64_t>(hole) > to ? to : static_cast<uint64_t>(hole);
    (void)system_call(SYS_madvise, state.partition->base + data, end - static_cast<uint64_t>(data), MADV_POPULATE_READ);
    at = end;
  }
  return some;
}

/// Whether this process's page table has the page at `address` (proc(5), pagemap).
bool is_in_page_table(uintptr_t address) {
  static const long pagemap = system_call(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  uint64_t entry = 0;
  (void)system_call(SYS_pread64, pagemap, &entry, sizeof entry, address / kPageBytes * sizeof entry);
  return (entry >> 63) != 0;
}

/// Whether the program's side of all blocks has to be taken away first: where the kernel's accesses are not served, nobody may
/// meet a page that is missing for a moment.
bool must_take_all() { return !state.engine->serves_kernel() && state.engine->kind() != base::EngineChoice::kSigsegv; }

/// From RESIDENT to WRITING and unmapped, so that everybody else asks the pager for it; false if somebody holds it. `before` is
/// what the word was.
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

/// Makes the kernel split what the block, which nobody can touch, is a part of; false if it does not.
bool make_kernel_split(uint64_t block) {
  auto* memory = reinterpret_cast<volatile char*>(state.partition->alias + block * kBlockBytes);
  const void* zero = memchr(const_cast<const char*>(memory), 0, kBlockBytes);
  const uint64_t at =
      zero == nullptr ? 0 : static_cast<uint64_t>(static_cast<const char*>(zero) - const_cast<const char*>(memory));
  const char there = memory[at];  // and the alias has the page in the page table; splitting takes it out
  const auto page = reinterpret_cast<uintptr_t>(memory + at) / kPageBytes * kPageBytes;
  (void)system_call(SYS_madvise, page, kPageBytes, kAdviceCold);
  if (!is_in_page_table(page)) {
    return true;
  }
  punch_bytes(*state.partition, block * kBlockBytes + at, 1);
  const bool is_split = !is_in_page_table(page);
  if (there != 0) {
    memory[at] = there;
  }
  return is_split;
}

/// What one block needs to be as it was.
struct Taken {
  bool taken;
  uint64_t before;
};

/// Maps the blocks of a page that was split as their words say.
void map_as_before(uint64_t first, const Taken* taken) {
  const bool only_taken = state.engine->kind() == base::EngineChoice::kSigsegv;  // rights are not lost
  for (uint64_t index = 0; index < kBlocks; ++index) {
    const uint64_t block = first + index;
    const uint64_t word = taken[index].taken ? taken[index].before : word_of(block).load(std::memory_order_acquire);
    if ((taken[index].taken || !only_taken) && (word & kMapped) != 0) {
      state.engine->map(view_of_block(*state.partition, block), (word & kWritable) != 0);
    }
    if (taken[index].taken) {
      give_back(block, word);
    }
  }
}

bool split(uint64_t block) {
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
  bool is_split = false;
  if (all) {
    const View view = view_of_block(*state.partition, block);
    state.engine->hide(view);
    is_split = !is_written_remotely(view) && make_kernel_split(block);
  }
  map_as_before(first, taken);
  return is_split;
}

}  // namespace

bool may_have_huge_pages() {
  utsname system = {};
  int major = 0;
  int minor = 0;
  const bool known = uname(&system) == 0 && sscanf(system.release, "%d.%d", &major, &minor) == 2;
  return state.engine->serves_kernel() || (known && (major > 6 || (major == 6 && minor >= 12)));
}

void map_in_small_pages() {
  if (state.partition->huge_pages == HugePages::kNowhere) {
    return;
  }
  const uint64_t committed = state.partition->committed.load(std::memory_order_relaxed);
  arena::let_have_huge_pages(state.partition->base, committed, false);
  for (uint64_t at = 0; at < committed; at += kHugePageBytes) {
    std::atomic<bool>& may_be_huge = state.may_be_huge[at / kHugePageBytes];
    if (may_be_huge.load(std::memory_order_relaxed)) {
      may_be_huge.store(map_anew(at, at + kHugePageBytes), std::memory_order_relaxed);
    }
  }
}

bool is_apart(uint64_t block) {
  std::atomic<bool>& may_be_huge = state.may_be_huge[block / kBlocks];
  if (!may_be_huge.load(std::memory_order_relaxed) || state_of(word_of(block).load(std::memory_order_acquire)) != kResident) {
    return true;
  }
  if (!split(block)) {
    return false;
  }
  may_be_huge.store(false, std::memory_order_relaxed);
  trace::count(Counter::kHugePagesSplit);
  return true;
}

void forget_huge_pages(uint64_t first, uint64_t count) {
  for (uint64_t page = (first + kBlocks - 1) / kBlocks; (page + 1) * kBlocks <= first + count; ++page) {
    state.may_be_huge[page].store(false, std::memory_order_relaxed);
  }
}

}  // namespace headroom::pager
