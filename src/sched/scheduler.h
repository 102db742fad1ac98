// The scheduler: how a rank waits, and which ranks compute while memory is short.
//
//   pass    ranks on the node at most cores, memory enough: the MPI library waits as it likes
//   yield   more ranks than cores, memory enough, and a library that spins: the processor is yielded between its polls
//   turns   memory is short: as yield, and the rank gives its *slot* up. A rank computes while it holds a slot; there are as
//           many as cores, or as asked for. The resident memory of a waiting rank is the first to be evicted, so the ranks
//           that compute have the memory. When all that there is fits and nothing has had to leave memory for two seconds,
//           turns end until something must.
//
// Slots pay for memory's sake, not for the processor's, so they begin when memory is short. A rank that waits for a message
// inside the node sleeps until it is rung (direct/waiting.h); one that waits for something of the MPI library's, which rings
// nobody, polls by timer (20 us, doubling to 1 ms). Both want a slot only to return to the program.
//
// No deadlock: a ready rank is admitted without a free slot (counted) if no slot was given up for kOverdueNs; a rank that dies
// gives its slot back (node/retiring.cc); a rank that polls without blocking (MPI_Test in a loop) gives its slot up after a
// while. Knows nothing of MPI's semantics.
#pragma once

#include <cstdint>

#include "base/settings.h"
#include "sched/traced_waits.h"

namespace headroom::sched {

using Mode = base::ModeChoice;

/// Told by the MPI layer at MPI_Init by the thread that calls it, which computes from then on, without a slot for the present.
void program_begins(bool library_spins);
/// True if there are more members on this node than cores that they may use.
bool is_oversubscribed();

/// Whether a rank that waits for a node-mate may sleep: there are more members than cores, or ranks take turns.
bool waiters_may_sleep();

/// How a rank waits now: never kAuto. Cheap: looked at by every blocking call.
Mode mode();

/// Gives the slot up around a call that may block and that we cannot see into; take_slot() ends it. Outside turns only a trace
/// is told.
void give_slot_up();
void take_slot();

/// Gives the slot up and goes on without one: turns have ended (a slot that was kept would be missed when they begin again), or
/// this process leaves. A thread that is about to give it up, or to take it, keeps that from happening: its next wait does it.
void leave_turns();

/// Called now and then by a thread that has given the slot up and goes on waiting: if other threads of the process kept it, but
/// do nothing with it, it is given up now.
void look_at_wait();

/// Around a call that waits several times and computes nothing in between (a barrier's stages): once given up, the slot is
/// taken back at its end only, so that a rank need not have its turn to pass a message on.
void begin_call_of_waits();
void end_call_of_waits();

/// One wait. After each poll that found nothing the caller calls pause(); the destructor gets the slot back.
class Wait {
 public:
  Wait();
  ~Wait();
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;
  void pause();

 private:
  uint64_t started_ns_ = 0;
  uint32_t polls_ = 0;
  uint32_t sleep_ns_ = 20'000;
  bool gave_up_ = false;
  TracedWait traced_;
};

/// The library's progress loop went round once, and moved something or not (mpi/progress_hook.cc).
void progressed(bool moved);

/// The library waits, and yields the processor, in a call that was not expected to wait (mpi/progress_hook.cc).
void library_yielded();

/// How to look once more for what the program polls for; true if it is there now.
struct LookAgain {
  bool (*look)(void* what) = nullptr;
  void* what = nullptr;
};

/// The program polled (MPI_Test, MPI_Iprobe) and found nothing, or found something. A rank that has found nothing for long
/// counts as blocked: it gives its slot to others, and `again` (if given) is called from time to time meanwhile.
void polled(bool found, LookAgain again = {});

}  // namespace headroom::sched
