// The heap: large allocations in the arena. malloc.cc (malloc and friends, C++ new through malloc) and memory_maps.cc
// (mmap, mremap, munmap, madvise) are its two faces; small allocations are small_objects.h's, or the C library's.
//
// Memory that must not be evictable never comes here: the MPI library and its threads allocate such memory for themselves (a
// network card may have it pinned). It is told by the code that asks (excluded_callers.h) and by a per-thread depth that the
// MPI layer keeps while it is inside the library.
//
// All functions are thread-safe. In a forked child nothing new comes from the arena, and freeing memory of the arena is a
// no-op.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "pager/pager.h"

namespace headroom::heap {

/// Allocations of at least this many bytes are looked at; SIZE_MAX until enable() and in forked children. Where small
/// allocations cannot move it is lowered, as the process turns out to need.
extern std::atomic<size_t> large_bytes;
/// The same of mappings and static data, which are never lowered: a program that maps memory may mean the system's.
extern size_t large_map_bytes;

/// How many more bytes this thread may allocate from the C library before the process is looked at: one that has become large
/// joins its node, so that its memory is counted, and memory that it allocates from then on may move.
extern constinit thread_local int64_t until_look_at_growth __attribute__((tls_model("initial-exec")));
void look_at_growth(const void* caller);
inline void note_small(size_t bytes, const void* caller) {
  until_look_at_growth -= static_cast<int64_t>(bytes);
  if (__builtin_expect(until_look_at_growth < 0, 0)) {
    look_at_growth(caller);
  }
}

/// Memory of the program's that is mapped so that it cannot move counts all the same, so a process that has much of it joins
/// its node as if it had allocated it.
void note_mapped(size_t bytes, const void* caller);
/// The same of memory that was reserved before and is committed now; looked at with the next allocation, since a signal handler
/// may do that.
inline void note_committed(size_t bytes) { until_look_at_growth -= static_cast<int64_t>(bytes); }

/// How deep this thread is inside the MPI library; > 0 means that allocations are the library's.
extern constinit thread_local int library_depth __attribute__((tls_model("initial-exec")));

/// Whether the user has asked for nothing to move (--large 1T --small off --static-data off).
bool user_lets_nothing_move();
/// Whether nothing may move: the user has asked for that, or let_nothing_move() was called.
bool nothing_moves();
/// Lets nothing move from now on, as if the user had asked for it; false if something may have moved already, or the user has
/// asked for what contradicts it. The program has one thread yet, or is about to begin with MPI.
bool let_nothing_move();

/// From now on large allocations come from the arena (settings are loaded).
void enable();
/// No longer (in a forked child).
void disable_in_child();

/// Whether an allocation of so many bytes that the code at `caller` asks for belongs in the arena. Starts the pager if need be.
bool belongs_in_arena(const void* caller, size_t bytes);
/// Small allocations, too, may move from now on, or where they cannot, those that are not quite so small. The pager runs.
void begin_with_smaller_ones();

/// Allocates from the arena; nullptr if it cannot serve (the caller falls back to the C library). Alignment: a power of two.
void* allocate(uint64_t bytes, uint64_t alignment, bool zeroed);
/// The same for memory that small objects are made of: not an allocation of the program's.
void* allocate_for_small_objects(uint64_t bytes, uint64_t alignment, bool zeroed);
/// The size of the allocation that begins at `address`, or 0 if there is none.
uint64_t allocation_bytes(const void* address);
/// Frees whole pages of [address, address + bytes). `keep`: the memory may stay populated for the next allocation.
void release(void* address, uint64_t bytes, bool keep);
/// Changes the size in place; false if it cannot.
bool resize_in_place(void* address, uint64_t bytes);
/// Makes [address, address + bytes) of the arena zeroed memory of the program's, whatever parts of it were in use before; false
/// if it cannot be had.
bool allocate_at(void* address, uint64_t bytes);
/// Leaves the addresses from `address` on, where nothing has been allocated yet, to others; false if something has.
bool give_addresses_up(const void* address);
/// Zeroes a range, giving whole blocks back to the system.
void zero(void* address, uint64_t bytes);
/// True if `address` lies in this process's part of the arena (not: static data).
inline bool owns(const void* address) {
  const arena::Partition& partition = pager::partition();
  return partition.base != 0 && reinterpret_cast<uintptr_t>(address) - partition.base < partition.limit;
}
/// Takes arena space for static data that will be mapped at its own address; false if it cannot be had.
bool claim_for_static_data(uint64_t bytes, uint64_t& offset);

/// Around fork: nobody may be inside the heap.
void lock_for_fork();
void unlock_after_fork();

}  // namespace headroom::heap
