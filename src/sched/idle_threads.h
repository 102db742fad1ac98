// Tells whether threads of the process compute while others of it are blocked in MPI.
//
// A known thread (threads.h) that is not blocked does, unless it uses no processor: it may wait in a condition variable.
// Threads that have never called MPI mostly do nothing, or spin, while the others are blocked (OpenMP's between two parallel
// regions). But one of them that waits for storage meanwhile computes, and so do all of them from then on until they use no
// processor any more, or have not needed storage for long.
//
// All functions may be called by any thread, the pager's too. Private to src/sched.
#pragma once

#include <cstdint>

namespace headroom::sched {

/// Whether the thread with that number (the kernel's) computes: it is this process's, none of Headroom's own, and not blocked
/// in MPI.
bool computes(int32_t number);
/// A thread computes, and waits for storage, while all known ones are blocked.
void note_unknown_computes();
/// Whether such threads compute.
bool unknown_threads_compute();
/// Whether they have needed storage lately.
bool unknown_threads_need_slot();
/// Whether all that are not blocked have hardly used a processor, nor waited for storage, since they were looked at before.
/// Looks every few milliseconds at most: false in between.
bool other_threads_are_idle();

}  // namespace headroom::sched
