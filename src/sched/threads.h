// The threads of this process that have called MPI. The slot is given up when every one of them is blocked there or idle
// elsewhere (in a condition variable, say: it has used no processor for a while), and taken back by the first that goes on from
// MPI; the others find it taken. Private to src/sched.
#pragma once

#include <cstdint>

namespace headroom::sched {

/// Whether this thread is blocked in MPI.
bool this_thread_blocks();
/// Says so; a thread's first call makes it known.
void set_this_thread_blocks(bool blocks);
/// Whether all known threads are blocked in MPI.
bool all_threads_block();
/// Whether those that are not have hardly used a processor since they were looked at before. Looks every few milliseconds at
/// most: false in between.
bool other_threads_are_idle();

}  // namespace headroom::sched
