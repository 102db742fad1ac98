// Small objects in the arena, so that programs made of millions of them may exceed memory too.
//
// jemalloc places them: its arenas get their memory, in chunks of 2 MiB and more, from the extents that large allocations come
// from (extents.h), and give whole blocks of freed memory up again. It is linked into the preloaded library under names of its
// own; a jemalloc of the program's is another one. Its data about objects lies beside them and is evictable as well.
//
// Only where the fault engine serves the kernel: system calls are made with small objects. Not for the C library's own objects
// (streams, its thread tables): the pager's thread may need those while it brings memory in. Not before the process has
// evictable memory at all, so a shell under Headroom pays nothing.
//
// All functions are thread-safe. In a forked child nothing new comes from here, and freeing objects of ours is a no-op.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "heap/excluded_callers.h"
#include "heap/heap.h"
#include "pager/pager.h"

namespace headroom::heap {

/// Whether small allocations are served here now; looked at by every malloc.
extern std::atomic<bool> small_objects_on;

/// Called when the process has evictable memory: begins to serve, if that is wanted and can be. Ends the process with a message
/// if it was insisted on and cannot.
void start_small_objects();
/// No longer (in a forked child).
void stop_small_objects_in_child();

/// To align one object jemalloc takes as much memory as the alignment says; beyond this, pages of an extent do better.
inline constexpr size_t kLargestAlignmentOfSmall = 2 << 20;

/// From the arena; nullptr if it cannot serve (the caller falls back to the C library). `alignment` is rounded up to a power of
/// two.
inline void* allocate_small(size_t bytes, size_t alignment, bool zeroed, const void* caller);
/// Whether `address`, in the arena, was allocated here.
inline bool is_small_object(const void* address);
/// How many bytes may be used at `address`.
size_t small_object_bytes(const void* address);
/// Changes the size, in place or not; nullptr if that cannot be had here, and nothing has changed.
void* reallocate_small(void* address, size_t bytes);
void free_small(void* address);

namespace detail {
enum class SmallObjectsOf : uint8_t { kUnknownThread = 0, kThisThread, kNotThisThread };
extern constinit thread_local SmallObjectsOf served __attribute__((tls_model("initial-exec")));
/// Decides whether this thread's objects come from the arena, and from which part of it.
bool serve_this_thread();
void* allocate_plainly(size_t bytes);
void* allocate_specially(size_t bytes, size_t alignment, bool zeroed);

// One bit a block of the partition: it belongs to a chunk of jemalloc's. Set with a chunk's first use, never cleared.
extern std::atomic<uint64_t> chunk_blocks[arena::kPartitionBytes / arena::kBlockBytes / 64];
inline uint64_t block_at(const void* address) {
  return (reinterpret_cast<uintptr_t>(address) - pager::partition().base) / arena::kBlockBytes;
}
}  // namespace detail
inline void* allocate_small(size_t bytes, size_t alignment, bool zeroed, const void* caller) {
  if (library_depth > 0 || caller_kind(caller) != CallerKind::kProgram ||
      (detail::served != detail::SmallObjectsOf::kThisThread && !detail::serve_this_thread())) {
    return nullptr;
  }
  return alignment == 1 && !zeroed ? detail::allocate_plainly(bytes) : detail::allocate_specially(bytes, alignment, zeroed);
}

inline bool is_small_object(const void* address) {
  const uint64_t block = detail::block_at(address);
  return (detail::chunk_blocks[block / 64].load(std::memory_order_relaxed) >> (block % 64) & 1) != 0;
}

}  // namespace headroom::heap
