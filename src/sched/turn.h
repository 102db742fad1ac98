// This process's turn: from getting a slot to giving it up. Private to src/sched.
#pragma once

#include <cstdint>

#include "base/system_calls.h"

namespace headroom::sched {

/// Held by the thread that takes a slot for the process, so that two do not.
base::FutexLock& turn_lock();
uint64_t turn_began_at();
/// The process goes on computing, mostly with a slot.
void begin_turn();
/// Whether all threads are blocked in MPI, or idle: then the rank waits. If it has the slot, it is given up; if it has waited
/// for `long_enough` others may have the memory. False, and nothing is done, if another thread is about to go on.
bool look_whether_rank_waits(bool long_enough);
/// The program could go on, but has no slot; others may have its memory meanwhile. `turn_ends`: the memory that it has used
/// since the turn began says how much it will need.
void get_in_line(bool turn_ends);
/// The slot is given up although the program could go on; it is ready for the next. False if there was none any more.
bool end_turn_early();

}  // namespace headroom::sched
