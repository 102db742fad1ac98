// How many of the process's threads were busy in a turn: the processor time that it used, by the time that passed. Hybrid
// programs (OpenMP, MPI_THREAD_MULTIPLE) so get as many slots as they keep cores busy. Private to src/sched.
#pragma once

#include <cstdint>

namespace headroom::sched {

/// How many threads were busy if they used so much processor time in the time that passed; `before` if that was too short to
/// tell.
uint32_t busy_threads_of(int64_t used_ns, uint64_t passed_ns, uint32_t before);

/// A turn begins.
void begin_counting_busy_threads();
/// How many were busy since then, at least 1; the number of the time before if it was too short to tell.
uint32_t busy_threads();

}  // namespace headroom::sched
