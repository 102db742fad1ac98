// The code that may not be given evictable memory: the MPI library, its parts, and network stacks beneath it.
//
// Told by the return address of the allocating call: the object that it lies in is looked up by name once and remembered.
// Looking up takes the dynamic loader's lock for a moment and none of ours, so constructors that run inside dlopen() may
// allocate. The same question ("is this call from inside MPI?") is asked by the MPI layer of every interposed call.
#pragma once

#include <atomic>
#include <cstdint>

#include "arena/arena.h"

namespace headroom::heap {

enum class CallerKind : uint32_t {
  kProgram,          // the program, its libraries, tools
  kMpiLibrary,       // libmpi, its plug-ins, UCX, libfabric, PMIx, verbs
  kLanguageBinding,  // MPI's Fortran and C++ libraries: they call on behalf of the program
  kSystem,           // the C library and the dynamic loader
};

/// The kind of code that `address` belongs to. Takes a nanosecond when code on that page has called before.
inline CallerKind caller_kind(const void* address);

namespace detail {
// The pages of code that have called lately: the page's number and its kind in one word, so that readers need no lock. Segments
// of objects begin on pages of their own.
inline constexpr uintptr_t kRecentPages = 256;
inline constexpr int kKindBits = 2;
static_assert(static_cast<int>(CallerKind::kSystem) < 1 << kKindBits);
extern std::atomic<uintptr_t> recent_callers[kRecentPages];
CallerKind look_up_caller(uintptr_t address);
}  // namespace detail

inline CallerKind caller_kind(const void* address) {
  const uintptr_t page = reinterpret_cast<uintptr_t>(address) / arena::kPageBytes;
  const uintptr_t known = detail::recent_callers[page % detail::kRecentPages].load(std::memory_order_relaxed);
  if (__builtin_expect(known >> detail::kKindBits == page, 1)) {
    return static_cast<CallerKind>(known & ((1 << detail::kKindBits) - 1));
  }
  return detail::look_up_caller(reinterpret_cast<uintptr_t>(address));
}

inline bool is_excluded_caller(const void* address) {
  const CallerKind kind = caller_kind(address);
  return kind == CallerKind::kMpiLibrary || kind == CallerKind::kLanguageBinding;
}

}  // namespace headroom::heap
