// The threads of this process that have called MPI. The slot is given up when every one of them is blocked there or idle
// elsewhere (idle_threads.h), and taken back by the first that goes on from MPI; the others find it taken. Private to
// src/sched.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>
#include <span>

namespace headroom::sched {

struct MpiThread {
  std::atomic<bool> used;
  std::atomic<bool> blocked;
  std::atomic<int32_t> number;  // the kernel's
  clockid_t processor_time;
  std::atomic<uint64_t> seen_ns;         // of processor time, when it was last looked at (idle_threads.cc)
  std::atomic<uint64_t> waits_since_ns;  // in MPI outside turns, while a trace is taken; 0: it does not (traced_waits.cc)
};

/// Whether this thread is blocked in MPI.
bool this_thread_blocks();
/// Says so; a thread's first call makes it known.
void set_this_thread_blocks(bool blocks);
/// This thread; nullptr if it has never said whether it is blocked, or is one of more than are kept account of.
MpiThread* this_mpi_thread_if_known();
/// Whether all known threads are blocked in MPI.
bool all_threads_block();
/// Whether one is.
bool some_thread_blocks();
/// The known threads; those that are not `used` have ended.
std::span<MpiThread> known_threads();
/// Whether there are more than are kept account of; then all_threads_block() is not true.
bool is_any_unknown();

}  // namespace headroom::sched
