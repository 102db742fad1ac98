// malloc and friends. Large allocations go to the arena, small ones too while small_objects.h serves them, everything else to
// the C library under its own names (__libc_malloc and so on), which costs two comparisons; C++ new comes here through malloc.
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "arena/arena.h"
#include "heap/heap.h"
#include "heap/real_function.h"
#include "heap/small_objects.h"
#include "pager/pager.h"

#define HEADROOM_EXPORT extern "C" __attribute__((visibility("default")))

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* address, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* address);
}

namespace {

using namespace headroom;

HEADROOM_REAL(malloc_usable_size);

size_t large_bytes() { return heap::large_bytes.load(std::memory_order_relaxed); }
bool small_objects_are_on() { return heap::small_objects_on.load(std::memory_order_relaxed); }

/// From the arena, or nullptr.
__attribute__((noinline)) void* allocate_large(size_t bytes, size_t alignment, bool zeroed, const void* caller) {
  return heap::belongs_in_arena(caller, bytes) ? heap::allocate(bytes, alignment, zeroed) : nullptr;
}

__attribute__((noinline)) void free_large(void* address) {
  if (large_bytes() == SIZE_MAX) {
    return;  // a forked child: its copy goes with it
  }
  const uint64_t bytes = heap::allocation_bytes(address);
  if (bytes == 0) {
    static const char message[] = "headroom: free(): invalid pointer\n";
    (void)!write(2, message, sizeof message - 1);
    abort();
  }
  heap::release(address, bytes, true);
}

/// Memory that may lie in the arena; nullptr if it must come from the C library.
inline void* allocate(size_t bytes, size_t alignment, bool zeroed, const void* caller) {
  if (__builtin_expect(bytes >= large_bytes(), 0)) {
    return allocate_large(bytes, alignment, zeroed, caller);
  }
  if (!small_objects_are_on()) {
    heap::note_small(bytes, caller);
    return nullptr;
  }
  if (__builtin_expect(alignment > heap::kLargestAlignmentOfSmall, 0)) {
    return allocate_large(bytes > 0 ? bytes : 1, alignment, zeroed, caller);
  }
  return heap::allocate_small(bytes, alignment, zeroed, caller);
}

void* allocate_aligned(size_t alignment, size_t bytes, const void* caller) {
  void* address = allocate(bytes, alignment, false, caller);
  return address != nullptr ? address : __libc_memalign(alignment, bytes);
}

/// Of an object of the arena's, large or small.
size_t bytes_in_arena(const void* address) {
  return heap::is_small_object(address) ? heap::small_object_bytes(address) : heap::allocation_bytes(address);
}

void free_in_arena(void* address) {
  if (__builtin_expect(heap::is_small_object(address), 1)) {
    heap::free_small(address);
  } else {
    free_large(address);
  }
}

void* move_object(void* address, size_t before, size_t bytes, void* moved) {
  if (moved != nullptr) {
    memcpy(moved, address, std::min(before, bytes));
    free(address);
  }
  return moved;
}

/// Of an object in the arena. In a forked child nothing is changed there, since the tables are its parent's.
__attribute__((noinline)) void* reallocate_in_arena(void* address, size_t bytes, const void* caller) {
  if (heap::is_small_object(address)) {
    void* resized = bytes < large_bytes() ? heap::reallocate_small(address, bytes) : nullptr;
    if (resized != nullptr) {
      return resized;
    }
  } else if (large_bytes() != SIZE_MAX && bytes >= large_bytes() && heap::resize_in_place(address, bytes)) {
    return address;
  }
  void* moved = allocate(bytes, 1, false, caller);
  return move_object(address, bytes_in_arena(address), bytes, moved != nullptr ? moved : __libc_malloc(bytes));
}

}  // namespace

HEADROOM_EXPORT void* malloc(size_t bytes) {
  void* address = allocate(bytes, 1, false, __builtin_return_address(0));
  return address != nullptr ? address : __libc_malloc(bytes);
}

HEADROOM_EXPORT void* calloc(size_t count, size_t bytes) {
  size_t total = 0;
  if (__builtin_expect(!__builtin_mul_overflow(count, bytes, &total), 1)) {
    if (void* address = allocate(total, 1, true, __builtin_return_address(0))) {
      return address;
    }
  }
  return __libc_calloc(count, bytes);
}

HEADROOM_EXPORT void* realloc(void* address, size_t bytes) {
  if (address == nullptr) {
    void* fresh = allocate(bytes, 1, false, __builtin_return_address(0));
    return fresh != nullptr ? fresh : __libc_malloc(bytes);
  }
  if (heap::owns(address)) {
    if (bytes == 0) {
      free_in_arena(address);
      return nullptr;
    }
    return reallocate_in_arena(address, bytes, __builtin_return_address(0));
  }
  if (__builtin_expect(bytes >= large_bytes(), 0)) {
    if (void* moved = allocate_large(bytes, 1, false, __builtin_return_address(0))) {
      const size_t before = malloc_usable_size(address);
      return move_object(address, before, bytes, moved);
    }
  }
  heap::note_small(bytes, __builtin_return_address(0));
  return __libc_realloc(address, bytes);
}

HEADROOM_EXPORT void* reallocarray(void* address, size_t count, size_t bytes) {
  size_t total = 0;
  if (__builtin_mul_overflow(count, bytes, &total)) {
    errno = ENOMEM;
    return nullptr;
  }
  return realloc(address, total);
}

HEADROOM_EXPORT void free(void* address) {
  if (heap::owns(address)) {
    free_in_arena(address);
    return;
  }
  __libc_free(address);
}
HEADROOM_EXPORT void cfree(void* address) { free(address); }
// C23's: the size and alignment that the caller gives beside the address are known here.
HEADROOM_EXPORT void free_sized(void* address, size_t /*bytes*/) { free(address); }
HEADROOM_EXPORT void free_aligned_sized(void* address, size_t /*alignment*/, size_t /*bytes*/) { free(address); }

HEADROOM_EXPORT int posix_memalign(void** out, size_t alignment, size_t bytes) {
  if (alignment % sizeof(void*) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) {
    return EINVAL;
  }
  const int saved_errno = errno;
  void* address = allocate_aligned(alignment, bytes, __builtin_return_address(0));
  errno = saved_errno;
  if (address == nullptr) {
    return ENOMEM;
  }
  *out = address;
  return 0;
}

HEADROOM_EXPORT void* aligned_alloc(size_t alignment, size_t bytes) {
  return allocate_aligned(alignment, bytes, __builtin_return_address(0));
}
HEADROOM_EXPORT void* memalign(size_t alignment, size_t bytes) {
  return allocate_aligned(alignment, bytes, __builtin_return_address(0));
}
HEADROOM_EXPORT void* valloc(size_t bytes) { return allocate_aligned(arena::kPageBytes, bytes, __builtin_return_address(0)); }
HEADROOM_EXPORT void* pvalloc(size_t bytes) {
  size_t rounded = 0;
  if (__builtin_add_overflow(bytes, arena::kPageBytes - 1, &rounded)) {
    errno = ENOMEM;
    return nullptr;
  }
  return allocate_aligned(arena::kPageBytes, rounded & ~(arena::kPageBytes - 1), __builtin_return_address(0));
}

HEADROOM_EXPORT size_t malloc_usable_size(void* address) {
  if (heap::owns(address)) {
    return bytes_in_arena(address);
  }
  return real_malloc_usable_size.get()(address);
}
