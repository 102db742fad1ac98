// The arena: where this process's evictable memory lives.
//
// A range of virtual addresses, the same in every process of a node, is cut into equal partitions, one a process. The
// memory of a partition is a memfd (or a nameless file like it, huge_page_file.h): no name in any file system, no dependence on
// the size of /dev/shm, gone with the last process. The owner maps it twice: at its *view*, the addresses that the program uses
// and where faults are caught, and at an *alias* for I/O, where they are not. A page of the memfd exists once, however often it
// is mapped.
//
// Static data of the program keeps its own addresses: its pages are moved into the partition and mapped back (a "static
// region"), so a block's view is not always base + offset; view_of_block() knows.
//
// The block table has one word a block, in shared memory, changed with atomic operations only. Its fields are below;
// pager/pager.h draws the transitions, and where each is made. The word alone says whether a block is resident, never the kind
// of a fault.
//
// This folder knows nothing of where blocks go when memory is short.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "arena/addresses.h"
#include "arena/huge_page_file.h"
#include "base/status.h"

namespace headroom::arena {

// 256 KiB: a fault costs 5 to 18 us at this size whatever the engine, which 40 GB/s of first touches would hide, and
// transfers are merged over neighbouring blocks anyway; at 64 KiB sweeps lost a third, at 2 MiB small budgets lose grain.
inline constexpr uint64_t kBlockBytes = 256 << 10;
inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint64_t kSmallestPartitionBytes = uint64_t{1} << 30;
inline constexpr int kMaxStaticRegions = 64;

// The block word.
using BlockWord = std::atomic<uint64_t>;
inline constexpr uint64_t kStateMask = 7;
enum BlockState : uint64_t {
  kFresh = 0,        // all zero, costs nothing
  kResident = 1,     // has physical memory
  kReading = 2,      // has physical memory that is being filled from storage
  kWriting = 3,      // has physical memory that is being written out
  kStored = 4,       // only on storage
  kSinglePages = 5,  // some or all of its pages are in memory, the others on storage (pager/single_pages.h)
};
inline constexpr uint64_t kDirty = 1 << 3;     // differs from what is on storage (or was never stored)
inline constexpr uint64_t kHasCopy = 1 << 4;   // storage has what was last written out, of pages that are not here at least
inline constexpr uint64_t kMapped = 1 << 5;    // the view can be read without a fault
inline constexpr uint64_t kWritable = 1 << 6;  // the view, or what is mapped of it, can be written without a fault
inline constexpr uint64_t kMarker = 1 << 7;    // read ahead and left unmapped, so that its first use moves the window on
inline constexpr uint64_t kOutOnce = 1 << 8;   // was evicted
inline constexpr uint64_t kOutTwice = 1 << 9;  // was evicted again
inline constexpr uint64_t kShared = 1 << 10;   // forked children map its memory: a thread that holds it waits for the pager
inline constexpr uint64_t kPinned = 1 << 11;   // one of the holds lasts as long as the content (pager::pin)
inline constexpr uint64_t kLocked = 1 << 12;   // another lasts until munlock (pager::try_lock)
inline constexpr uint64_t kUndefined =
    1 << 13;  // clean without a copy, since the program will overwrite it (pager::will_overwrite)
inline constexpr uint64_t kHold = uint64_t{1} << 16;  // one hold of either kind
inline constexpr uint64_t kHoldMask = uint64_t{0xffff} << 16;
inline constexpr uint64_t kWriteHold = uint64_t{1} << 32;  // a hold for writing counts here too
inline constexpr uint64_t kWriteHoldMask = uint64_t{0xffff} << 32;

struct View {
  uintptr_t address;
  uint64_t bytes;
};

struct StaticRegion {
  uintptr_t address;
  uint64_t bytes;
  uint64_t offset;  // in the partition, a multiple of kBlockBytes
};

struct Partition {
  uintptr_t base = 0;                  // view of offset 0
  uintptr_t alias = 0;                 // alias of offset 0
  std::atomic<uint64_t> limit{0};      // bytes of addresses reserved; may shrink (give_addresses_up)
  std::atomic<uint64_t> committed{0};  // bytes mapped so far, a multiple of kBlockBytes
  int descriptor = -1;                 // the memfd
  int table_descriptor = -1;           // the block table's
  HugePages huge_pages = HugePages::kNowhere;
  bool blocks_are_pages = false;  // one that is made at once is one page (whole_blocks.h)
  BlockWord* blocks = nullptr;
  std::atomic<uint64_t>* unmapped = nullptr;  // bit a page: the program has unmapped it (pager/unmapped.cc)
  std::atomic<uint32_t>* punches = nullptr;   // by block: how often memory of it was taken away
  StaticRegion static_regions[kMaxStaticRegions] = {};
  std::atomic<int> static_region_count{0};
};

/// Reserves the addresses of partition `index` and makes its file and block table; `may_be_huge`: its memory may have huge
/// pages. kNoMemory with a message if the limits of the process (RLIMIT_AS, RLIMIT_NOFILE) do not allow even a small partition.
base::Status open_partition(Partition& partition, int index, bool may_be_huge);

/// The number that tells the file of a partition from any other.
uint64_t inode_of(int descriptor);

/// Maps the partition of member `index` of the node, `bytes` whose file `descriptor` is here, at the addresses that it has in
/// all processes; false if they are not free here. Without a right to it: use holds (pager/pager.h).
bool map_peer_partition(int index, int descriptor, uint64_t bytes);

/// Leaves the addresses from `from` on to others; the partition ends before them. False if some of what follows is committed,
/// or too little would be left. Not beside commit().
bool give_addresses_up(Partition& partition, uintptr_t from);

/// Maps a member's block table, whose file `descriptor` is here; nullptr if that cannot be had.
BlockWord* map_block_table(int descriptor);

/// Makes at least `bytes` of the partition usable. New pages are mapped readable and writable if `accessible`, else not at
/// all. kNoMemory (silently) when the partition is full or RLIMIT_FSIZE or RLIMIT_AS forbid it: the caller falls back.
base::Status commit(Partition& partition, uint64_t bytes, bool accessible);

/// Maps partition [offset, offset + bytes) at `address`, replacing what is there; the content must already be in the memfd.
base::Status add_static_region(Partition& partition, uintptr_t address, uint64_t bytes, uint64_t offset);

/// True if `address` is in the view of the partition or in a static region; `offset` is then where. Safe in signal handlers.
bool find_offset(const Partition& partition, uintptr_t address, uint64_t& offset);

/// Whether the program has unmapped the page at `offset`, which lies in the partition. Safe in signal handlers.
inline bool is_unmapped(const Partition& partition, uint64_t offset) {
  const uint64_t page = offset / kPageBytes;
  return (partition.unmapped[page / 64].load(std::memory_order_relaxed) >> (page % 64) & 1) != 0;
}

/// The addresses at which the program sees block `block` (shorter than a block at the end of a static region).
View view_of_block(const Partition& partition, uint64_t block);

/// The view of `count` blocks from `block` on, as far as it is contiguous and of one region; `count` is lowered to that.
View view_of_run(const Partition& partition, uint64_t block, uint64_t& count);

/// Lets the kernel use huge pages for the parts of the view [address, address + bytes) that are touched from now on, or ends
/// that.
void let_have_huge_pages(uintptr_t address, uint64_t bytes, bool may);

/// Takes the physical memory of the blocks away (all mappings then have a hole there).
void punch(const Partition& partition, uint64_t block, uint64_t count);

/// How often memory of the block at `offset` was taken away: others' mappings of it are gone since.
inline uint32_t punches_at(const Partition& partition, uint64_t offset) {
  return partition.punches[offset / kBlockBytes].load(std::memory_order_acquire);
}

/// Zeroes bytes of the partition without giving anything back (they are within one page).
void punch_bytes(const Partition& partition, uint64_t offset, uint64_t bytes);

/// Gives the blocks zero-filled physical memory where they have none, in small pages. kNoMemory if the kernel refuses.
base::Status populate(const Partition& partition, uint64_t block, uint64_t count);
/// The same for one page, at that offset; in the alias, too.
base::Status populate_page(const Partition& partition, uint64_t offset);

inline uint64_t block_of(uint64_t offset) { return offset / kBlockBytes; }
inline uint64_t state_of(uint64_t word) { return word & kStateMask; }
inline const char* name_of(uint64_t state) {
  constexpr const char* kNames[] = {"fresh", "resident", "reading", "writing", "stored", "in single pages"};
  return state < sizeof kNames / sizeof *kNames ? kNames[state] : "?";
}

}  // namespace headroom::arena
