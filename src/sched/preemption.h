// Ranks that compute for long without calling MPI: they give way where they are stopped anyway, at a fault on storage.
//
// When another rank has been ready for kPatienceNs and this one has had its turn for as long, the turn is *cut* at the next
// such fault: the slot is given up, and no fault on storage is served before there is a slot again. The program sees a slow
// disk. So a rank that never calls MPI does not make others wait until they are overdue and compute beside it, each driving the
// other's memory out. So does one that computes without a slot, because turns began in the middle of what it does and it has
// not waited for long enough since to get one: it takes one at its first such fault, or waits for one there. The same where
// more slots are held than there are, because ranks had lent theirs (slots.cc) and do so no longer, and where it turns out in
// the middle of a turn that the rank needs more than the ranks that compute leave (pager::needed_in_turn()). A program all of
// whose threads block in MPI meanwhile (its data came after all) ends the cut: the wait's own bookkeeping goes on from there. A
// fault of the MPI library's own, in a thread that is blocked there, never waits for a turn. A thread that never calls MPI and
// computes while all others are blocked (idle_threads.h) gets in line in the same way; but since it might be the library's, and
// the ranks that have the slots wait for its work, it waits no longer than kUnknownWaitNs, and not more than half of the time.
#pragma once

namespace headroom::sched {

/// Has the pager ask at each fault on storage.
void watch_long_turns();

/// While there is one, the turn is not cut: another rank, which may have the slot, waits for what this thread does.
class Uncut {
 public:
  Uncut();
  ~Uncut();
  Uncut(const Uncut&) = delete;
  Uncut& operator=(const Uncut&) = delete;
};

}  // namespace headroom::sched
