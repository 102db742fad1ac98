// Slots: the right to compute while memory is short. There are as many as cores, or as asked for; a rank is admitted when one
// is free and what it is expected to use fits beside what those use who compute.
//
// Private to src/sched. The process has one slot, whatever the number of its threads (threads.h).
#pragma once

#include <cstdint>

#include "node/ledger.h"
#include "pager/pager.h"

namespace headroom::sched {

inline constexpr uint64_t kOverdueNs = 5'000'000'000;  // who has waited so long gets a slot, free or not

inline node::Ledger& ledger() { return *pager::session().ledger; }
inline node::Member& self() { return *pager::session().self; }

inline bool has_slot() { return self().has_slot.load(std::memory_order_relaxed) != 0; }

/// Says what this rank does now, to the others and in the trace.
void set_run_state(node::RunState state);

/// Waits until this process has a slot; one that has waited too long takes one more than there are.
void wait_for_slot();
/// Takes a slot if this process may have one now. (The lock of the turn, in scheduler.cc, keeps its threads from taking two.)
bool try_take_slot();
/// Takes a slot although none is free: counted as overdue.
void take_overdue_slot();
/// Whether the next free slot is this process's.
bool is_next();
/// Says that this process could go on and waits for a slot.
void become_ready();
/// Whether some rank has been ready for as long, and could have a slot if this one gave its own up.
bool somebody_waits_for(uint64_t ns);
/// Gives the slot up, if there is one (else false), and rings whoever should have it.
bool release_slot();
/// Whether some rank waits for a slot and could have it.
bool somebody_is_ready();

}  // namespace headroom::sched
