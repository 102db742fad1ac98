// Memory of the arena that the program has unmapped: it faults, as it would without Headroom, until it is used again. (Memory
// that was freed does not: the C library keeps such, too.)
//
// Its pages' rights are taken away, and a bit says so. A fault on such a page does not reach a userfaultfd: the kernel looks at
// rights first. Where rights are how memory is watched (engine sigsegv) the bits alone count once it is, and whole blocks: the
// handler hands such faults to the program; a system call on such memory still works there, since it is held.
#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "pager/fork.h"
#include "pager/pager.h"
#include "pager/state.h"
#include "pager/transition_lock.h"

namespace headroom::pager {
namespace {

using arena::kBlockBytes;
using arena::kPageBytes;
using base::system_call;

std::atomic<uint64_t> unmapped_pages{0};

bool rights_are_the_pagers() { return engine() == base::EngineChoice::kSigsegv; }

std::atomic<uint64_t>& word_at(uint64_t page) { return partition().unmapped[page / 64]; }

void set_bits(uint64_t first, uint64_t end, bool on) {
  while (first < end) {
    const uint64_t next = (first / 64 + 1) * 64;
    const uint64_t count = std::min(end, next) - first;
    const uint64_t bits = (~uint64_t{0} >> (64 - count)) << (first % 64);
    std::atomic<uint64_t>& word = word_at(first);
    const uint64_t before =
        on ? word.fetch_or(bits, std::memory_order_relaxed) : word.fetch_and(~bits, std::memory_order_relaxed);
    const auto changed = static_cast<uint64_t>(std::popcount(on ? bits & ~before : bits & before));
    on ? unmapped_pages.fetch_add(changed, std::memory_order_relaxed)
       : unmapped_pages.fetch_sub(changed, std::memory_order_relaxed);
    first += count;
  }
}

/// Calls each(first, end) for runs of unmapped pages in [first, end).
template <typename Each>
void for_each_unmapped(uint64_t first, uint64_t end, Each each) {
  for (uint64_t page = first; page < end;) {
    if (word_at(page).load(std::memory_order_relaxed) == 0) {
      page = (page / 64 + 1) * 64;
      continue;
    }
    uint64_t run = page;
    while (run < end && arena::is_unmapped(partition(), run * kPageBytes)) {
      ++run;
    }
    if (run > page) {
      each(page, run);
    }
    page = std::max(run, page + 1);
  }
}

}  // namespace

void take_access_away(uint64_t offset, uint64_t bytes) {
  const uint64_t committed = partition().committed.load(std::memory_order_acquire);
  uint64_t first = offset;
  uint64_t end = offset + bytes < committed ? offset + bytes : committed;
  if (rights_are_the_pagers()) {
    first = (first + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
    end = end / kBlockBytes * kBlockBytes;
  }
  if (first >= end) {
    return;
  }
  const TransitionHolder lock;  // it does not arm meanwhile
  const bool by_bits_alone = rights_are_the_pagers() && is_armed();
  if (!by_bits_alone && base::is_error(system_call(SYS_mprotect, partition().base + first, end - first, PROT_NONE))) {
    return;  // too many mappings: it stays accessible
  }
  set_bits(first / kPageBytes, end / kPageBytes, true);
}

bool give_access_back(uint64_t offset, uint64_t bytes) {
  if (unmapped_pages.load(std::memory_order_relaxed) == 0) {
    return true;
  }
  const TransitionHolder lock;
  const bool by_bits_alone = rights_are_the_pagers() && is_armed();
  bool all = true;
  for_each_unmapped(offset / kPageBytes, (offset + bytes + kPageBytes - 1) / kPageBytes, [&](uint64_t first, uint64_t end) {
    if (!by_bits_alone && base::is_error(system_call(SYS_mprotect, partition().base + first * kPageBytes,
                                                     (end - first) * kPageBytes, PROT_READ | PROT_WRITE))) {
      all = false;
      return;
    }
    set_bits(first, end, false);
  });
  return all;
}

bool has_unmapped(const void* address, uint64_t bytes) {
  const arena::Partition& here = partition();
  const uint64_t offset = reinterpret_cast<uintptr_t>(address) - here.base;
  if (unmapped_pages.load(std::memory_order_relaxed) == 0 || here.base == 0 || offset >= here.limit) {
    return false;
  }
  const uint64_t most = here.limit - offset;
  bool found = false;
  for_each_unmapped(offset / kPageBytes, (offset + std::min(bytes, most) + kPageBytes - 1) / kPageBytes,
                    [&](uint64_t, uint64_t) { found = true; });
  return found;
}

void take_access_away_in_child() {
  const arena::Partition& here = partition();
  if (unmapped_pages.load(std::memory_order_relaxed) > 0) {
    for_each_unmapped(0, here.committed.load(std::memory_order_relaxed) / kPageBytes, [&](uint64_t first, uint64_t end) {
      (void)system_call(SYS_mprotect, here.base + first * kPageBytes, (end - first) * kPageBytes, PROT_NONE);
    });
  }
}

}  // namespace headroom::pager
