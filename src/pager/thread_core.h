// The choice of the cores that the pager's thread runs on.
//
// Beside the core that the launcher has bound the program to, if there is one that no rank has: moving blocks and computing
// then go on at the same time. (A rank of Open MPI's that has one of two cores: sweeps over twice the budget 1.06 to 1.22 times
// as fast. Where all cores are ranks', they seemed 5 % slower in three runs.)
//
// On the program's core while one thread jumps about in memory and waits for one page after the other: nothing goes on at the
// same time there (if the program's other threads compute, it does, and the thread stays where it is), and an idle core takes
// longer to wake, an idle virtual one 20 us, than a core takes to change threads. That needs a thread that is bound to one
// core: others are woken by the kernel on any core that is idle.
//
// Private to src/pager; for the pager's thread alone, but for the first.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// Before the pager's thread starts, by the thread that starts it.
void find_cores_to_use();

/// Moves the thread, if it is better off elsewhere by now.
void follow_cores();

/// A page is being read alone, for that thread of the program's.
void note_page_reader(int32_t thread);

/// Whether it runs on the core of a thread that waits for pages.
bool shares_core_of_reader();

}  // namespace headroom::pager
