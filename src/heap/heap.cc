// See heap.h.
#include "heap/heap.h"

#include <errno.h>
#include <string.h>

#include <algorithm>

#include "base/log.h"
#include "base/own_threads.h"
#include "base/system_calls.h"
#include "heap/access_rights.h"
#include "heap/allocation_sites.h"
#include "heap/excluded_callers.h"
#include "heap/extents.h"
#include "heap/small_objects.h"
#include "pager/pager.h"
#include "trace/counters.h"
#include "trace/recorder.h"

namespace headroom::heap {

using trace::Counter;

std::atomic<size_t> large_bytes{SIZE_MAX};
size_t large_map_bytes = SIZE_MAX;
constinit thread_local int64_t until_look_at_growth __attribute__((tls_model("initial-exec"))) = 1 << 20;
constinit thread_local int library_depth __attribute__((tls_model("initial-exec"))) = 0;

namespace {

base::FutexLock heap_lock;
bool extents_open = false;
bool trimmed = false;
bool was_told_to_move_nothing = false;
std::atomic<bool> said_that_one_was_refused{false};

void* address_of(uint64_t offset) { return reinterpret_cast<void*>(pager::partition().base + offset); }
uint64_t offset_of(const void* address) { return reinterpret_cast<uintptr_t>(address) - pager::partition().base; }

/// Memory that is kept populated for reuse goes back once memory is short. Called with the lock held.
void trim_when_short() {
  if (!trimmed && pager::is_armed()) {
    trimmed = true;
    trim_kept_extents();
  }
}

uint64_t whole_pages(uint64_t bytes) { return (bytes + arena::kPageBytes - 1) / arena::kPageBytes * arena::kPageBytes; }

void count_allocated(uint64_t bytes) {
  trace::count(Counter::kAllocatedBytes, bytes);
  trace::count_peak(Counter::kAllocatedBytesPeak, trace::counted(Counter::kAllocatedBytes));
}

void zero_what_is_not(const Placement& placement, uint64_t bytes) {
  if (placement.zeroed) {
    return;
  }
  auto* begin = static_cast<char*>(address_of(placement.offset));
  char* end = begin + bytes;
  if (!placement.inner_zeroed) {
    memset(begin, 0, bytes);
    return;
  }
  const uint64_t block = arena::kBlockBytes;
  char* first_end = static_cast<char*>(address_of((placement.offset / block + 1) * block));
  char* last_begin = static_cast<char*>(address_of((placement.offset + bytes - 1) / block * block));
  if (!placement.first_block_zeroed) {
    memset(begin, 0, static_cast<size_t>(std::min(first_end, end) - begin));
  }
  if (!placement.last_block_zeroed && last_begin > begin) {
    memset(last_begin, 0, static_cast<size_t>(end - last_begin));
  }
}

/// With the lock held.
bool open_once() {
  extents_open = extents_open || open_extents() == base::Status::kOk;
  return extents_open;
}

base::Result<Placement> place(uint64_t bytes, uint64_t alignment) {
  base::LockHolder lock(heap_lock);
  if (!open_once()) {
    return base::Status::kNoMemory;
  }
  trim_when_short();
  return allocate_extent(bytes, alignment);
}

}  // namespace

namespace {

constexpr size_t kLeastLarge = 64 << 10;
constexpr size_t kUsuallyLarge = 1 << 20;
constexpr size_t kBeyondEverything = size_t{1} << 40;
constexpr size_t kLargeWhereSmallStay = 128 << 10;  // from here on the C library maps memory for an allocation
constexpr int64_t kNoMoreLooks = INT64_MAX / 2;

void lower_to(size_t bytes) {
  size_t seen = large_bytes.load(std::memory_order_relaxed);
  while (seen != SIZE_MAX && seen > bytes) {
    if (large_bytes.compare_exchange_weak(seen, bytes, std::memory_order_relaxed)) {
      base::log_debug(base::Part::kHeap, "allocations from %zu KiB on may move, before from %zu", bytes >> 10, seen >> 10);
      return;
    }
  }
}

bool is_for_us_to_choose() {
  return base::settings().large == 0 && base::settings().small != base::SmallChoice::kOff && !nothing_moves() &&
         !small_objects_on.load(std::memory_order_relaxed);
}

/// Much of the process cannot move; called by the pager's thread.
void lower_since_much_stays() {
  if (is_for_us_to_choose()) {
    lower_to(kLeastLarge);
  }
}

}  // namespace

void enable() {
  const size_t asked = was_told_to_move_nothing ? kBeyondEverything : base::settings().large;
  const size_t large = asked == 0 ? kUsuallyLarge : std::max(asked, kLeastLarge);
  large_map_bytes = large;
  large_bytes.store(large, std::memory_order_relaxed);
  pager::call_when_crowded(lower_since_much_stays);
}
bool user_lets_nothing_move() {
  const base::Settings& settings = base::settings();
  return settings.large >= kBeyondEverything && settings.small == base::SmallChoice::kOff &&
         settings.static_data == base::StaticDataChoice::kOff;
}
bool nothing_moves() { return was_told_to_move_nothing || user_lets_nothing_move(); }
bool let_nothing_move() {
  const base::Settings& settings = base::settings();
  const bool is_asked_to =
      (settings.large != 0 && settings.large < kBeyondEverything) || settings.small == base::SmallChoice::kOn;
  const bool has_begun = pager::partition().base != 0 && pager::partition().committed.load(std::memory_order_relaxed) != 0;
  if (is_asked_to || has_begun) {
    return nothing_moves();
  }
  was_told_to_move_nothing = true;
  if (large_bytes.load(std::memory_order_relaxed) != SIZE_MAX) {
    enable();
  }
  return true;
}
void disable_in_child() {
  large_bytes.store(SIZE_MAX, std::memory_order_relaxed);
  large_map_bytes = SIZE_MAX;
  stop_small_objects_in_child();
}

void begin_with_smaller_ones() {
  if (nothing_moves()) {
    return;
  }
  start_small_objects();
  if (is_for_us_to_choose()) {
    lower_to(kLargeWhereSmallStay);
  }
}

void look_at_growth(const void* caller) {
  constexpr int64_t kLookEach = 4 << 20;
  constexpr int64_t kWorthJoining = 16 << 20;  // a shell has 4 MiB
  until_look_at_growth = kNoMoreLooks;         // the next calls allocate, too
  const int saved_errno = errno;
  const auto is_programs = [caller] {
    return library_depth == 0 && !base::on_own_thread() && caller_kind(caller) == CallerKind::kProgram;
  };
  if (large_bytes.load(std::memory_order_relaxed) == SIZE_MAX || !is_programs() ||
      !(pager::is_running() || pager::own_memory_exceeds(kWorthJoining))) {
    until_look_at_growth = kLookEach;
  } else if (pager::start() == base::Status::kOk) {
    begin_with_smaller_ones();
  }
  errno = saved_errno;
}

namespace {

/// Whether memory of that size is asked for by code whose memory may not move.
bool is_for_others(const void* caller, size_t bytes) {
  // The C library hands buffers of its own to system calls that nobody wraps (getdents).
  const bool is_libcs = bytes < kUsuallyLarge && caller_kind(caller) == CallerKind::kSystem;
  return library_depth > 0 || is_excluded_caller(caller) || (is_libcs && !pager::engine_serves_kernel());
}

bool start_and_begin() {
  const bool is_running = pager::start() == base::Status::kOk;
  if (is_running) {
    begin_with_smaller_ones();
  }
  return is_running;
}

}  // namespace

bool belongs_in_arena(const void* caller, size_t bytes) {
  if (base::on_own_thread()) {
    return false;
  }
  const int saved_errno = errno;
  bool belongs = false;
  if (is_for_others(caller, bytes)) {
    trace::count(Counter::kAllocationsPassed);
  } else {
    belongs = start_and_begin();
  }
  errno = saved_errno;
  return belongs;
}

void note_mapped(size_t bytes, const void* caller) {
  if (pager::is_running() || large_bytes.load(std::memory_order_relaxed) == SIZE_MAX) {
    return;
  }
  if (bytes < large_map_bytes) {
    note_small(bytes, caller);
    return;
  }
  const int saved_errno = errno;
  if (!base::on_own_thread() && !is_for_others(caller, bytes)) {
    (void)start_and_begin();
  }
  errno = saved_errno;
}

namespace {

constexpr uint64_t kMostAddresses = uint64_t{1} << 47;

void say_that_one_is_refused(uint64_t bytes) {
  trace::count(Counter::kAllocationsRefused);
  if (said_that_one_was_refused.exchange(true, std::memory_order_relaxed)) {
    return;
  }
  const auto mib = static_cast<unsigned long long>(bytes >> 20);
  const arena::Partition& partition = pager::partition();
  if (partition.limit < arena::partition_bytes() || !base::file_may_have(partition.committed + bytes + arena::kBlockBytes)) {
    base::log_warning(
        "an allocation of %llu MiB stays in memory: addresses, or the limit on file sizes (ulimit -v, ulimit -f), do not "
        "allow more that can be moved to storage",
        mib);
  } else {
    base::log_warning(
        "an allocation of %llu MiB stays in memory: a process can have %llu GiB that can be moved to storage, and has no such "
        "piece left; more ranks can have more",
        mib, static_cast<unsigned long long>(arena::partition_bytes() >> 30));
  }
}

/// Takes memory of the arena; nullptr if it cannot be had.
void* take(uint64_t bytes, uint64_t alignment, bool zeroed) {
  if (bytes > kMostAddresses || alignment > arena::kPartitionBytes) {
    return nullptr;  // nobody has such memory
  }
  const int saved_errno = errno;
  const base::Result<Placement> placement =
      bytes <= arena::kPartitionBytes ? place(bytes, alignment) : base::Result<Placement>(base::Status::kNoMemory);
  errno = saved_errno;
  if (!placement.ok()) {
    say_that_one_is_refused(bytes);
    return nullptr;
  }
  count_allocated(whole_pages(bytes));
  if (pager::partition().huge_pages == arena::HugePages::kEverywhere) {
    pager::let_have_huge_pages(address_of(placement.value.offset), bytes, true);
  }
  pager::look_for_first_touch(address_of(placement.value.offset), bytes);
  if (zeroed) {
    zero_what_is_not(placement.value, bytes);
  }
  const uint64_t first = arena::block_of(placement.value.offset);
  pager::let_touch_ahead(first, arena::block_of(placement.value.offset + bytes - 1) - first + 1, true);
  return address_of(placement.value.offset);
}

}  // namespace

void* allocate(uint64_t bytes, uint64_t alignment, bool zeroed) {
  void* address = take(bytes, alignment, zeroed);
  if (address != nullptr) {
    trace::count(Counter::kAllocations);
    if (trace::is_recording()) {
      label_with_site(offset_of(address), bytes);
    }
  }
  return address;
}

void* allocate_for_small_objects(uint64_t bytes, uint64_t alignment, bool zeroed) {
  void* address = take(bytes, alignment, zeroed);
  trace::count(Counter::kSmallObjectBytes, address != nullptr ? bytes : 0);
  return address;
}

uint64_t allocation_bytes(const void* address) {
  base::LockHolder lock(heap_lock);
  const uint64_t offset = offset_of(address);
  return extents_open && offset % arena::kPageBytes == 0 ? extent_bytes(offset) : 0;
}

void release(void* address, uint64_t bytes, bool keep) {
  const int saved_errno = errno;
  give_rights_back(address, bytes);
  pager::let_have_huge_pages(address, bytes, false);
  {
    base::LockHolder lock(heap_lock);
    trim_when_short();
    free_range(offset_of(address), bytes, keep);
    if (!keep) {
      pager::take_access_away(offset_of(address), whole_pages(bytes));
    }
  }
  trace::count_down(Counter::kAllocatedBytes, whole_pages(bytes));
  errno = saved_errno;
}

bool resize_in_place(void* address, uint64_t bytes) {
  if (bytes > arena::kPartitionBytes) {
    return false;  // near 2^64 its whole pages would come to 0
  }
  const int saved_errno = errno;
  base::LockHolder lock(heap_lock);
  const uint64_t before = extent_bytes(offset_of(address));
  if (whole_pages(bytes) < before) {
    give_rights_back(static_cast<char*>(address) + whole_pages(bytes), before - whole_pages(bytes));
    pager::let_have_huge_pages(static_cast<char*>(address) + whole_pages(bytes), before - whole_pages(bytes), false);
  }
  const bool resized = resize_extent(offset_of(address), bytes) == base::Status::kOk;
  if (resized) {
    const uint64_t after = extent_bytes(offset_of(address));
    if (after > before && pager::partition().huge_pages == arena::HugePages::kEverywhere) {
      pager::let_have_huge_pages(address, after, true);
    }
    trace::count(Counter::kAllocatedBytes, after - before);  // modulo 2^64, so it may shrink
    trace::count_peak(Counter::kAllocatedBytesPeak, trace::counted(Counter::kAllocatedBytes));
  }
  errno = saved_errno;
  return resized;
}

void zero(void* address, uint64_t bytes) {
  const int saved_errno = errno;
  uint64_t first = 0;
  uint64_t last = 0;
  const uint64_t offset = offset_of(address);
  {
    base::LockHolder lock(heap_lock);
    discard_inner(offset, bytes, first, last);
  }
  zero_whatever_the_rights(address, first - offset);
  if (last < offset + bytes) {
    zero_whatever_the_rights(address_of(last), offset + bytes - last);
  }
  errno = saved_errno;
}

bool allocate_at(void* address, uint64_t bytes) {
  {
    const int saved_errno = errno;
    base::LockHolder lock(heap_lock);
    uint64_t fresh = 0;
    const uint64_t limit = pager::partition().limit;
    const bool claimed = open_once() && bytes <= limit && offset_of(address) <= limit - bytes &&
                         claim_range(offset_of(address), bytes, fresh) == base::Status::kOk;
    errno = saved_errno;
    if (!claimed) {
      return false;
    }
    trace::count(Counter::kAllocatedBytes, fresh);
    trace::count_peak(Counter::kAllocatedBytesPeak, trace::counted(Counter::kAllocatedBytes));
  }
  zero(address, bytes);
  return true;
}

bool give_addresses_up(const void* address) {
  base::LockHolder lock(heap_lock);
  return pager::give_addresses_up(reinterpret_cast<uintptr_t>(address));
}

bool claim_for_static_data(uint64_t bytes, uint64_t& offset) {
  const uint64_t whole = (bytes + arena::kBlockBytes - 1) / arena::kBlockBytes * arena::kBlockBytes;
  const base::Result<Placement> placement = place(whole, arena::kBlockBytes);
  offset = placement.value.offset;
  return placement.ok();
}

void lock_for_fork() { heap_lock.lock(); }
void unlock_after_fork() { heap_lock.unlock(); }

}  // namespace headroom::heap
