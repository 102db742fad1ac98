// Ranks that compute for long without calling MPI: they give way where they are stopped anyway, at a fault on storage.
//
// When another rank has been ready for kPatienceNs and this one has had its turn for as long, the slot is given up at the next
// such fault, and the fault is not served before there is a slot again. The program sees a slow disk. So a rank that never
// calls MPI does not make others wait until they are overdue and compute beside it, each driving the other's memory out.
//
// Private to src/sched, but for the one call that the pager is given.
#pragma once

namespace headroom::sched {

/// Has the pager ask at each fault on storage.
void watch_long_turns();

}  // namespace headroom::sched
