// The threads of this process that have called MPI. The slot is given up when every one of them is blocked there or idle
// elsewhere (in a condition variable, say: it has used no processor for a while), and taken back by the first that goes on from
// MPI; the others find it taken.
//
// Threads that have never called MPI are not known: most of them do nothing, or spin, while the others are blocked (OpenMP's
// between two parallel regions). One that waits for storage meanwhile computes. Private to src/sched.
#pragma once

#include <cstdint>

namespace headroom::sched {

/// Whether this thread is blocked in MPI.
bool this_thread_blocks();
/// Says so; a thread's first call makes it known.
void set_this_thread_blocks(bool blocks);
/// Whether all known threads are blocked in MPI, and no other one has been seen to compute.
bool all_threads_block();
/// Whether the thread with that number (the kernel's) is this process's and not blocked in MPI, known or not.
bool computes(int32_t thread);
/// That thread computes while those that are known may all be blocked. If it is not one of them, that counts until it is idle.
void note_computing(int32_t thread);
/// Whether those that are not blocked have hardly used a processor, nor waited for storage, since they were looked at before.
/// Looks every few milliseconds at most: false in between.
bool other_threads_are_idle();

}  // namespace headroom::sched
