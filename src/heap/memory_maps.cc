// mmap, munmap, mremap, madvise, mprotect and mlock. Large anonymous private mappings of the program come from the arena and
// keep anonymous semantics: MADV_DONTNEED zeroes, mremap keeps the content, partial munmap works.
//
// Mappings that ask for something special (a fixed address elsewhere, huge pages, stacks, no access) stay with the system, and
// so do the MPI library's. A mapping at a fixed address inside the arena that is anonymous and private is made of arena memory.
// One of a file, or a shared one, cannot be: the pager's mapping would be gone. It is refused, with a warning.
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <type_traits>

#include "arena/arena.h"
#include "base/all_rights.h"
#include "base/log.h"
#include "base/system_calls.h"
#include "heap/access_rights.h"
#include "heap/bare_calls.h"
#include "heap/excluded_callers.h"
#include "heap/heap.h"
#include "pager/pager.h"

#define HEADROOM_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace headroom;
using base::system_call;

template <typename T = int>
T result_of(long result, T failure) {
  if (base::is_error(result)) {
    errno = static_cast<int>(-result);
    return failure;
  }
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<T>(result);
  } else {
    return static_cast<T>(result);
  }
}

bool wants_plain_memory(int protection, int flags) {
  const int allowed = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_POPULATE;
  return protection == (PROT_READ | PROT_WRITE) && (flags & MAP_PRIVATE) != 0 && (flags & MAP_ANONYMOUS) != 0 &&
         (flags & ~allowed) == 0;
}

// Memory may lie elsewhere than where a program proposes. But allocators that want theirs side by side give such memory back
// and ask again, up to a thousand times: from the first time on this process's proposals are followed.
std::atomic<bool> insists_on_addresses{false};
struct Given {
  const void* address;
  size_t bytes;
};
constinit thread_local Given given_elsewhere __attribute__((tls_model("initial-exec"))) = {};

/// Code that is made at run time has to lie near other code.
bool is_near(const void* one, const void* other) {
  constexpr uintptr_t kReach = uintptr_t{4} << 30;
  const auto a = reinterpret_cast<uintptr_t>(one);
  const auto b = reinterpret_cast<uintptr_t>(other);
  return (a > b ? a - b : b - a) < kReach;
}

bool may_lie_elsewhere(const void* proposed, const void* caller) {
  return proposed == nullptr || (!insists_on_addresses.load(std::memory_order_relaxed) && !is_near(proposed, caller));
}

constexpr int kCollapse = 25;  // MADV_COLLAPSE, which older headers do not have

uint64_t whole_pages(uint64_t bytes) { return (bytes + arena::kPageBytes - 1) & ~(arena::kPageBytes - 1); }

/// More than can lie in the arena: near 2^64 its whole pages would come to 0.
bool is_beyond_arena(size_t bytes) { return bytes > arena::kPartitionBytes; }

bool in_child() { return heap::large_bytes.load(std::memory_order_relaxed) == SIZE_MAX; }

bool overlaps(const void* address, size_t bytes, uintptr_t with, uint64_t with_bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  return with != 0 && begin < with + with_bytes && (begin >= with ? bytes > 0 : bytes > with - begin);
}

bool touches_arena(const void* address, size_t bytes) {
  return overlaps(address, bytes, pager::partition().base, pager::partition().limit);
}

/// The program's large static arrays, which have been moved into the arena's file.
bool touches_static_data(const void* address, size_t bytes) {
  const arena::Partition& partition = pager::partition();
  const int count = partition.static_region_count.load(std::memory_order_acquire);
  for (int index = 0; index < count; ++index) {
    if (overlaps(address, bytes, partition.static_regions[index].address, partition.static_regions[index].bytes)) {
      return true;
    }
  }
  return false;
}

void* refuse(const char* what) {
  static std::atomic<bool> said{false};
  if (!said.exchange(true, std::memory_order_relaxed)) {
    base::log_warning(
        "%s over memory that may be moved to storage is not possible; the program is told that memory is "
        "exhausted. Raise --large above the size of what it first allocated there",
        what);
  }
  errno = ENOMEM;
  return MAP_FAILED;
}

/// mmap() at a fixed address inside the arena.
void* map_over(void* address, size_t bytes, int protection, int flags) {
  const int plain = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_POPULATE | MAP_FIXED;
  if ((flags & MAP_ANONYMOUS) == 0 || (flags & MAP_PRIVATE) == 0 || (flags & ~plain) != 0) {
    return refuse("mapping a file or shared memory");
  }
  if (reinterpret_cast<uintptr_t>(address) % arena::kPageBytes != 0 || bytes == 0) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  if (is_beyond_arena(bytes)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  const size_t whole = whole_pages(bytes);
  const bool own_rights = protection != (PROT_READ | PROT_WRITE);
  heap::give_rights_back(address, whole);
  if (!heap::owns(address) || !heap::allocate_at(address, whole)) {
    return refuse("a mapping at a fixed address");
  }
  if (own_rights && heap::protect(address, whole, protection) != 0) {
    return MAP_FAILED;  // its old content is gone; the program has been told that memory is exhausted
  }
  return address;
}

/// Whether it is a segment that all processes of a job must have at one address (arena/addresses.h). Others get another place
/// if theirs is taken.
bool needs_its_address(int flags, const void* caller) {
  const bool of_file = (flags & MAP_SHARED) != 0 && (flags & MAP_ANONYMOUS) == 0;
  return (of_file || (flags & MAP_FIXED_NOREPLACE) != 0) && heap::caller_kind(caller) == heap::CallerKind::kMpiLibrary;
}

/// Moves an arena mapping to `bytes` of new memory of the system's or the arena's; at `fixed` if that is not nullptr.
void* move_mapping(void* old_address, size_t old_bytes, void* fixed, size_t bytes, const void* caller) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (fixed != nullptr ? MAP_FIXED : 0);
  void* moved = heap::map(fixed, bytes, PROT_READ | PROT_WRITE, flags, -1, 0, caller);
  if (moved != MAP_FAILED) {
    if (!in_child()) {
      heap::give_rights_back(old_address, whole_pages(old_bytes));  // it may be unreadable; the new place is read-write
    }
    memcpy(moved, old_address, whole_pages(std::min(old_bytes, bytes)));
    if (!in_child()) {
      heap::release(old_address, whole_pages(old_bytes), false);
    }
  }
  return moved;
}

/// Zeroes the parts of the range that lie in moved static arrays.
void zero_static_data(void* address, size_t bytes) {
  const arena::Partition& partition = pager::partition();
  const int count = partition.static_region_count.load(std::memory_order_acquire);
  const auto begin = reinterpret_cast<uintptr_t>(address);
  for (int index = 0; index < count; ++index) {
    const arena::StaticRegion& region = partition.static_regions[index];
    const uintptr_t first = std::max(begin, region.address);
    const uintptr_t last = begin + bytes < region.address + region.bytes ? begin + bytes : region.address + region.bytes;
    if (first < last) {
      heap::zero_whatever_the_rights(reinterpret_cast<void*>(first), last - first);
    }
  }
}

/// The kernel's answer for memory that is not mapped.
bool refuses_unmapped(const void* address, size_t bytes) {
  if (__builtin_expect(pager::has_unmapped(address, bytes), 0)) {
    errno = ENOMEM;
    return true;
  }
  return false;
}

void zero_here(uintptr_t begin, uint64_t bytes) { memset(reinterpret_cast<void*>(begin), 0, bytes); }

/// madvise() of whole pages of the arena, or of static arrays that have been moved there: these are zero at the start.
int advise_pages(void* address, size_t bytes, int advice, bool is_static) {
  switch (advice) {
    case MADV_DONTNEED:
    case MADV_REMOVE:
      if (in_child()) {  // its mapping is a private one of the parent's file
        base::with_all_rights(reinterpret_cast<uintptr_t>(address), bytes, zero_here);
      } else if (is_static) {
        zero_static_data(address, bytes);
      } else {
        heap::zero(address, bytes);
      }
      return 0;
    case MADV_FREE:  // the content may be lost, so it is neither written out nor read again
      if (!in_child() && !is_static) {
        pager::will_overwrite(address, bytes);
      }
      return 0;
    case MADV_WILLNEED:
    case MADV_POPULATE_READ:
    case MADV_POPULATE_WRITE:
      if (!in_child()) {
        pager::will_need(address, bytes);
      }
      return 0;
    case MADV_COLD:
    case MADV_PAGEOUT:
      if (!in_child()) {
        pager::will_not_need(address, bytes);
      }
      return 0;
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
      if (!in_child() && !is_static) {
        pager::let_have_huge_pages(address, bytes, advice == MADV_HUGEPAGE);
        if (advice == MADV_NOHUGEPAGE) {
          pager::end_first_touch(reinterpret_cast<uintptr_t>(address) - pager::partition().base, bytes);
        }
      }
      return 0;
    case MADV_NORMAL:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
    case MADV_DONTFORK:
    case MADV_DOFORK:
    case MADV_KEEPONFORK:
    case MADV_MERGEABLE:
    case MADV_UNMERGEABLE:
    case MADV_DONTDUMP:
    case MADV_DODUMP:
    case kCollapse:
      // Advice about the order of access, forking or dumping is the pager's to follow or not; passed on it would only cut the
      // mapping into pieces.
      return 0;
    default:  // promises that cannot be kept (MADV_WIPEONFORK), and unknown advice
      errno = EINVAL;
      return -1;
  }
}

}  // namespace

namespace headroom::heap {

void* map(void* address, size_t bytes, int protection, int flags, int descriptor, off_t offset, const void* caller) {
  if (address != nullptr && touches_arena(address, bytes) && !in_child() && needs_its_address(flags, caller)) {
    (void)give_addresses_up(address);
  }
  if ((flags & MAP_FIXED) != 0 && !in_child()) {
    if (touches_arena(address, bytes)) {
      return map_over(address, bytes, protection, flags);
    }
    if (touches_static_data(address, bytes)) {
      return refuse("a mapping at a fixed address");
    }
  }
  if (__builtin_expect(bytes >= large_map_bytes, 0) && wants_plain_memory(protection, flags) &&
      may_lie_elsewhere(address, caller) && bytes <= SIZE_MAX - arena::kPageBytes && belongs_in_arena(caller, bytes)) {
    if (void* place = allocate(whole_pages(bytes), arena::kPageBytes, true)) {  // all of the last page is zero
      given_elsewhere = {address != nullptr ? place : nullptr, bytes};
      return place;
    }
  }
  const long mapped = system_call(SYS_mmap, address, bytes, protection, flags, descriptor, offset);
  if ((flags & MAP_ANONYMOUS) != 0 && (protection & PROT_WRITE) != 0 && !base::is_error(mapped)) {
    note_mapped(bytes, caller);
  }
  return result_of<void*>(mapped, MAP_FAILED);
}

int unmap(void* address, size_t bytes) {
  if (owns(address)) {
    if (reinterpret_cast<uintptr_t>(address) % arena::kPageBytes != 0 || bytes == 0 || is_beyond_arena(bytes)) {
      errno = EINVAL;
      return -1;
    }
    if (address == given_elsewhere.address && bytes == given_elsewhere.bytes) {
      insists_on_addresses.store(true, std::memory_order_relaxed);
    }
    if (!in_child()) {
      release(address, whole_pages(bytes), false);
    } else {
      (void)system_call(SYS_mprotect, address, whole_pages(bytes), PROT_NONE);
    }
    return 0;
  }
  if (!in_child() && touches_static_data(address, bytes)) {
    refuse("giving up the addresses");
    return -1;
  }
  return result_of(system_call(SYS_munmap, address, bytes), -1);
}

void* remap(void* old_address, size_t old_bytes, size_t bytes, int flags, void* new_address, const void* caller) {
  if (!owns(old_address)) {
    const bool target =
        new_address != nullptr && (touches_arena(new_address, bytes) || touches_static_data(new_address, bytes));
    if (!in_child() && (target || touches_static_data(old_address, old_bytes))) {
      return refuse("moving a mapping");
    }
    const long moved = system_call(SYS_mremap, old_address, old_bytes, bytes, flags, new_address);
    if (bytes > old_bytes && !base::is_error(moved)) {
      note_mapped(bytes - old_bytes, caller);
    }
    return result_of<void*>(moved, MAP_FAILED);
  }
  const size_t distance = reinterpret_cast<uintptr_t>(new_address) - reinterpret_cast<uintptr_t>(old_address);
  const bool overlap = new_address != nullptr && (distance < old_bytes || -distance < bytes);
  if ((flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED)) != 0 || bytes == 0 || old_bytes == 0 || overlap) {
    errno = EINVAL;  // as the system says; the old mapping cannot stay as an empty one (MREMAP_DONTUNMAP)
    return MAP_FAILED;
  }
  if (new_address != nullptr) {
    return move_mapping(old_address, old_bytes, new_address, bytes, caller);
  }
  if (whole_pages(bytes) == whole_pages(old_bytes)) {
    return old_address;
  }
  if (bytes < old_bytes) {
    if (!in_child()) {
      release(static_cast<char*>(old_address) + whole_pages(bytes), whole_pages(old_bytes) - whole_pages(bytes), false);
    }
    return old_address;
  }
  if ((flags & MREMAP_MAYMOVE) == 0) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return move_mapping(old_address, old_bytes, nullptr, bytes, caller);
}

/// Some of it is not mapped: the advice is taken for the rest all the same, as the kernel does, which then says so.
int advise_what_is_mapped(char* address, size_t bytes, int advice) {
  for (size_t at = 0; at < bytes; at += arena::kPageBytes) {
    const size_t begin = at;
    while (at < bytes && !pager::has_unmapped(address + at, arena::kPageBytes)) {
      at += arena::kPageBytes;
    }
    if (at > begin && advise_pages(address + begin, at - begin, advice, false) != 0) {
      return -1;
    }
  }
  errno = ENOMEM;
  return -1;
}

int advise(void* address, size_t bytes, int advice) {
  const bool is_static = !owns(address) && touches_static_data(address, bytes);
  if (!owns(address) && !is_static) {
    return result_of(system_call(SYS_madvise, address, bytes, advice), -1);
  }
  if (reinterpret_cast<uintptr_t>(address) % arena::kPageBytes != 0 || is_beyond_arena(bytes)) {
    errno = EINVAL;
    return -1;
  }
  if (__builtin_expect(!is_static && pager::has_unmapped(address, bytes), 0)) {
    return advise_what_is_mapped(static_cast<char*>(address), whole_pages(bytes), advice);
  }
  return advise_pages(address, whole_pages(bytes), advice, is_static);
}

int protect(void* address, size_t bytes, int protection) {
  if (refuses_unmapped(address, bytes)) {
    return -1;
  }
  if (pager::covers(address) && !in_child() && !prepare_for_rights(address, bytes)) {
    return -1;
  }
  const long done = system_call(SYS_mprotect, address, bytes, protection);
  if ((protection & PROT_WRITE) != 0 && !base::is_error(done)) {
    note_committed(bytes);
  }
  return result_of(done, -1);
}

}  // namespace headroom::heap

HEADROOM_EXPORT int munmap(void* address, size_t bytes) { return heap::unmap(address, bytes); }
HEADROOM_EXPORT int madvise(void* address, size_t bytes, int advice) { return heap::advise(address, bytes, advice); }
HEADROOM_EXPORT int mprotect(void* address, size_t bytes, int protection) { return heap::protect(address, bytes, protection); }

HEADROOM_EXPORT void* mmap(void* address, size_t bytes, int protection, int flags, int descriptor, off_t offset) {
  return heap::map(address, bytes, protection, flags, descriptor, offset, __builtin_return_address(0));
}
HEADROOM_EXPORT void* mmap64(void* address, size_t bytes, int protection, int flags, int descriptor, off_t offset) {
  return heap::map(address, bytes, protection, flags, descriptor, offset, __builtin_return_address(0));
}

HEADROOM_EXPORT void* mremap(void* old_address, size_t old_bytes, size_t bytes, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  void* new_address = (flags & MREMAP_FIXED) != 0 ? va_arg(arguments, void*) : nullptr;
  va_end(arguments);
  return heap::remap(old_address, old_bytes, bytes, flags, new_address, __builtin_return_address(0));
}

HEADROOM_EXPORT int mlock(const void* address, size_t bytes) {
  if (refuses_unmapped(address, bytes)) {
    return -1;
  }
  if (pager::covers(address) && !in_child()) {
    if (!pager::try_lock(address, bytes)) {
      errno = ENOMEM;
      return -1;
    }
    return 0;
  }
  return result_of(system_call(SYS_mlock, address, bytes), -1);
}
HEADROOM_EXPORT int msync(void* address, size_t bytes, int flags) {
  return refuses_unmapped(address, bytes) ? -1 : result_of(system_call(SYS_msync, address, bytes, flags), -1);
}
HEADROOM_EXPORT int mlock2(const void* address, size_t bytes, unsigned flags) {
  if (pager::covers(address) && !in_child()) {
    return mlock(address, bytes);
  }
  return result_of(system_call(SYS_mlock2, address, bytes, flags), -1);
}
HEADROOM_EXPORT int munlock(const void* address, size_t bytes) {
  if (pager::covers(address) && !in_child()) {
    pager::unlock(address, bytes);
    return 0;
  }
  return result_of(system_call(SYS_munlock, address, bytes), -1);
}
HEADROOM_EXPORT int munlockall() {
  if (pager::partition().base != 0 && !in_child()) {
    pager::unlock_all();
  }
  return result_of(system_call(SYS_munlockall), -1);
}
/// mlockall() would populate the whole arena, holes and all; for the future too, when there is none yet. Locking is a promise
/// of latency that paging cannot keep, so it is refused as the system refuses it to a process without the privilege.
HEADROOM_EXPORT int mlockall(int flags) {
  if (!in_child()) {
    static std::atomic<bool> said{false};
    if (!said.exchange(true, std::memory_order_relaxed)) {
      base::log_warning("mlockall() is refused: memory that may be moved to storage cannot be locked as a whole");
    }
    errno = EPERM;
    return -1;
  }
  return result_of(system_call(SYS_mlockall, flags), -1);
}
