// Reserving, mapping and punching a partition; see arena.h.
#include "arena/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/kernel_abi.h"
#include "base/log.h"
#include "base/own_descriptors.h"
#include "base/settings.h"
#include "base/system_calls.h"
#include "trace/counters.h"

namespace headroom::arena {
namespace {

using base::Status;
using base::system_call;

// Mapped in steps, so that a program with many allocations does not map for each of them.
constexpr uint64_t kCommitStep = 64 << 20;

long map_raw(uintptr_t address, uint64_t bytes, int protection, int flags, int descriptor, uint64_t offset) {
  return system_call(SYS_mmap, address, bytes, protection, flags, descriptor, offset);
}

/// Both mappings are kept out of core dumps (reading a hole there would fill it) and of children (pager/fork.cc).
void exclude_from_children_and_dumps(uintptr_t address, uint64_t bytes) {
  (void)system_call(SYS_madvise, address, bytes, MADV_DONTFORK);
  (void)system_call(SYS_madvise, address, bytes, MADV_DONTDUMP);
}

bool reserve_addresses(Partition& partition, int index) {
  const uintptr_t wanted = partition_base(index);
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  for (uint64_t bytes = partition_bytes(); bytes >= kSmallestPartitionBytes; bytes /= 2) {
    const long view = map_raw(wanted, bytes, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
    if (base::is_error(view) || static_cast<uintptr_t>(view) != wanted) {
      if (!base::is_error(view)) {
        (void)system_call(SYS_munmap, view, bytes);
      }
      continue;
    }
    const long alias = map_raw(0, bytes, PROT_NONE, flags, -1, 0);
    if (!base::is_error(alias)) {
      partition.base = wanted;
      partition.alias = static_cast<uintptr_t>(alias);
      partition.limit = bytes;
      return true;
    }
    (void)system_call(SYS_munmap, view, bytes);
  }
  return false;
}

long open_memory_file(bool may_be_huge, Partition& partition) {
  const base::HugePagesChoice choice = base::settings().huge_pages;
  HugePages& huge_pages = partition.huge_pages;
  huge_pages = choice == base::HugePagesChoice::kNever    ? HugePages::kNowhere
               : choice == base::HugePagesChoice::kAlways ? HugePages::kEverywhere
                                                          : huge_pages_of_system();
  partition.blocks_are_pages = may_be_huge && choice != base::HugePagesChoice::kNever && large_writes_make_large_pages();
  if (huge_pages != HugePages::kNowhere || partition.blocks_are_pages) {
    const int descriptor = may_be_huge ? open_huge_page_file(partition.blocks_are_pages ? "always" : "advise") : -ENOSYS;
    if (descriptor >= 0) {
      return descriptor;
    }
    if (choice == base::HugePagesChoice::kAlways) {
      base::die("--huge-pages always: %s: %s; use --huge-pages auto",
                may_be_huge ? "this user cannot mount a tmpfs in a user namespace" : "with this engine Linux 6.12 is needed",
                strerror(-descriptor));
    }
    base::log_debug(base::Part::kArena, "no huge pages for evictable memory: %s", strerror(-descriptor));
    trace::count(trace::Counter::kHugePagesRefused, huge_pages != HugePages::kNowhere ? 1 : 0);
    huge_pages = HugePages::kNowhere;
    partition.blocks_are_pages = false;
  }
  // Where memory files always have huge pages, one that has none is better: nobody would split them.
  const int small = memory_files_have_huge_pages() ? open_huge_page_file("never") : -ENOSYS;
  return small >= 0 ? small : system_call(SYS_memfd_create, "headroom-arena", MFD_CLOEXEC);
}

BlockWord* make_block_table(uint64_t blocks, int& descriptor) {
  const long made = system_call(SYS_memfd_create, "headroom-blocks", MFD_CLOEXEC);
  if (base::is_error(made) || base::is_error(system_call(SYS_ftruncate, made, blocks * sizeof(BlockWord)))) {
    return nullptr;
  }
  descriptor = base::own(made);
  return map_block_table(descriptor);
}

const StaticRegion* static_region_of_offset(const Partition& partition, uint64_t offset) {
  const int count = partition.static_region_count.load(std::memory_order_acquire);
  for (int index = 0; index < count; ++index) {
    const StaticRegion& region = partition.static_regions[index];
    if (offset - region.offset < region.bytes) {
      return &region;
    }
  }
  return nullptr;
}

}  // namespace

Status open_partition(Partition& partition, int index, bool may_be_huge) {
  if (!reserve_addresses(partition, index)) {
    base::log_warning(
        "cannot reserve %llu MiB of addresses, so this process runs without Headroom, in ordinary memory; `ulimit -v "
        "unlimited` "
        "before it is started mends that",
        static_cast<unsigned long long>(kSmallestPartitionBytes >> 20));
    return Status::kNoMemory;
  }
  const long descriptor = open_memory_file(may_be_huge, partition);
  partition.blocks = make_block_table(partition.limit / kBlockBytes, partition.table_descriptor);
  partition.unmapped = static_cast<std::atomic<uint64_t>*>(base::reserve_memory(partition.limit / kPageBytes / 8));
  partition.punches =
      static_cast<std::atomic<uint32_t>*>(base::reserve_memory(partition.limit / kBlockBytes * sizeof(std::atomic<uint32_t>)));
  if (base::is_error(descriptor) || partition.blocks == nullptr || partition.unmapped == nullptr ||
      partition.punches == nullptr) {
    base::log_warning("cannot make a memory file for evictable memory: %s (see `ulimit -n`)",
                      strerror(base::is_error(descriptor) ? static_cast<int>(-descriptor) : ENOMEM));
    return Status::kNoMemory;
  }
  partition.descriptor = base::own(descriptor);
  return Status::kOk;
}

BlockWord* map_block_table(int descriptor) {
  struct stat status = {};
  if (fstat(descriptor, &status) != 0 || status.st_size == 0) {
    return nullptr;
  }
  const auto bytes = static_cast<uint64_t>(status.st_size);
  const long table = map_raw(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  if (base::is_error(table)) {
    return nullptr;
  }
  exclude_from_children_and_dumps(static_cast<uintptr_t>(table), bytes);
  return reinterpret_cast<BlockWord*>(table);
}

uint64_t inode_of(int descriptor) {
  struct stat status = {};
  return fstat(descriptor, &status) == 0 ? (uint64_t{status.st_dev} << 32) ^ status.st_ino : 0;
}

bool map_peer_partition(int index, int descriptor, uint64_t bytes) {
  const uintptr_t wanted = partition_base(index);
  const long view =
      map_raw(wanted, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE, descriptor, 0);
  if (base::is_error(view)) {
    return false;
  }
  if (static_cast<uintptr_t>(view) != wanted) {
    (void)system_call(SYS_munmap, view, bytes);
    return false;
  }
  exclude_from_children_and_dumps(wanted, bytes);
  advise_small_pages(wanted, bytes);
  return true;
}

bool give_addresses_up(Partition& partition, uintptr_t from) {
  const uint64_t limit = partition.limit.load(std::memory_order_relaxed);
  const uint64_t kept = (from - partition.base) / kBlockBytes * kBlockBytes;
  if (from < partition.base || kept >= limit || kept < kSmallestPartitionBytes ||
      kept < partition.committed.load(std::memory_order_relaxed)) {
    return false;
  }
  partition.limit.store(kept, std::memory_order_relaxed);
  (void)system_call(SYS_munmap, partition.base + kept, limit - kept);
  (void)system_call(SYS_munmap, partition.alias + kept, limit - kept);
  return true;
}

Status commit(Partition& partition, uint64_t bytes, bool accessible) {
  const uint64_t before = partition.committed.load(std::memory_order_relaxed);
  if (bytes <= before) {
    return Status::kOk;
  }
  const uint64_t most = partition.limit.load(std::memory_order_relaxed);
  if (bytes > most) {
    return Status::kNoMemory;
  }
  uint64_t after = (bytes + kCommitStep - 1) / kCommitStep * kCommitStep;
  after = std::min(after, most);
  if (!base::file_may_have(after)) {
    after = (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  }
  if (!base::file_may_have(after) || base::is_error(system_call(SYS_ftruncate, partition.descriptor, after))) {
    return Status::kNoMemory;
  }
  const uint64_t grown = after - before;
  const int protection = accessible ? PROT_READ | PROT_WRITE : PROT_NONE;
  const long view =
      map_raw(partition.base + before, grown, protection, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, partition.descriptor, before);
  const long alias = map_raw(partition.alias + before, grown, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                             partition.descriptor, before);
  if (base::is_error(view) || base::is_error(alias)) {
    return Status::kNoMemory;
  }
  exclude_from_children_and_dumps(partition.base + before, grown);
  exclude_from_children_and_dumps(partition.alias + before, grown);
  if (partition.huge_pages != HugePages::kNowhere || partition.blocks_are_pages) {
    advise_small_pages(partition.base + before, grown);  // a part that is given leave and loses it joins its neighbours, too
    advise_small_pages(partition.alias + before, grown);
  }
  // release: pairs with the acquire in find_offset(): a thread that sees the size sees the mapping.
  partition.committed.store(after, std::memory_order_release);
  return Status::kOk;
}

Status add_static_region(Partition& partition, uintptr_t address, uint64_t bytes, uint64_t offset) {
  const int count = partition.static_region_count.load(std::memory_order_relaxed);
  if (count == kMaxStaticRegions) {
    return Status::kNoMemory;
  }
  const long view =
      map_raw(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, partition.descriptor, offset);
  if (base::is_error(view)) {
    return Status::kNoMemory;
  }
  exclude_from_children_and_dumps(address, bytes);
  advise_small_pages(address, bytes);
  partition.static_regions[count] = {address, bytes, offset};
  partition.static_region_count.store(count + 1, std::memory_order_release);
  return Status::kOk;
}

bool find_offset(const Partition& partition, uintptr_t address, uint64_t& offset) {
  if (address - partition.base < partition.committed.load(std::memory_order_acquire) && partition.base != 0) {
    offset = address - partition.base;
    return true;
  }
  const int count = partition.static_region_count.load(std::memory_order_acquire);
  for (int index = 0; index < count; ++index) {
    const StaticRegion& region = partition.static_regions[index];
    if (address - region.address < region.bytes) {
      offset = region.offset + (address - region.address);
      return true;
    }
  }
  return false;
}

View view_of_block(const Partition& partition, uint64_t block) {
  uint64_t count = 1;
  return view_of_run(partition, block, count);
}

View view_of_run(const Partition& partition, uint64_t block, uint64_t& count) {
  const uint64_t offset = block * kBlockBytes;
  if (const StaticRegion* region = static_region_of_offset(partition, offset)) {
    const uint64_t left = region->bytes - (offset - region->offset);
    const uint64_t blocks_left = (left + kBlockBytes - 1) / kBlockBytes;
    count = std::min(count, blocks_left);
    const uint64_t bytes = std::min<uint64_t>(count * kBlockBytes, left);
    return {region->address + (offset - region->offset), bytes};
  }
  // A static region ahead ends the run.
  const int regions = partition.static_region_count.load(std::memory_order_acquire);
  for (int index = 0; index < regions; ++index) {
    const uint64_t first = block_of(partition.static_regions[index].offset);
    if (first > block && first - block < count) {
      count = first - block;
    }
  }
  return {partition.base + offset, count * kBlockBytes};
}

void let_have_huge_pages(uintptr_t address, uint64_t bytes, bool may) {
  (void)system_call(SYS_madvise, address, bytes, may ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

void punch(const Partition& partition, uint64_t block, uint64_t count) {
  punch_bytes(partition, block * kBlockBytes, count * kBlockBytes);
}

void punch_bytes(const Partition& partition, uint64_t offset, uint64_t bytes) {
  for (uint64_t block = block_of(offset); block * kBlockBytes < offset + bytes; ++block) {
    partition.punches[block].fetch_add(1, std::memory_order_release);
  }
  const long result =
      system_call(SYS_fallocate, partition.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
  if (base::is_error(result)) {
    base::die(
        "cannot give %llu KiB of memory back to the system: %s; a security profile that refuses fallocate() must allow it, and "
        "where the kernel is short of memory itself --memory must be lower",
        static_cast<unsigned long long>(bytes >> 10), strerror(static_cast<int>(-result)));
  }
}

Status populate(const Partition& partition, uint64_t block, uint64_t count) {
  const uint64_t offset = block * kBlockBytes;
  const uint64_t bytes = count * kBlockBytes;
  // Both leave pages that are dirty: clean ones, zero as they are, the kernel may drop when it is short of memory itself.
  long result = 0;
  do {
    result = partition.blocks_are_pages ? system_call(SYS_madvise, partition.alias + offset, bytes, MADV_POPULATE_WRITE)
                                        : system_call(SYS_fallocate, partition.descriptor, 0, offset, bytes);
  } while (result == -EINTR || result == -EAGAIN);
  return base::is_error(result) ? Status::kNoMemory : Status::kOk;
}

Status populate_page(const Partition& partition, uint64_t offset) {
  long result = 0;
  do {
    result = system_call(SYS_madvise, partition.alias + offset, kPageBytes, MADV_POPULATE_WRITE);
  } while (result == -EINTR || result == -EAGAIN);
  return base::is_error(result) ? Status::kNoMemory : Status::kOk;
}

}  // namespace headroom::arena
