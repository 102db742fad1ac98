// The figures of a node whose last program ends past the C library.
//
// The last process of a node that leaves writes the summary and the JSON file. One that ends by the bare system call (every Go
// program does) does not leave; if it was the last nobody is left to write them, and the ledger is gone with it. So each
// process that joins its node hands the ledger to its supervisor, by a socket of an abstract name that HEADROOM_FIGURES has.
// The supervisor takes it at once: the kernel counts descriptors that wait in a user's sockets against that user's limit. When
// the program has ended, and a process of it that joined is found not to have left, the supervisor starts `headroom-ledger
// ended` (top/report_ended.cc), which does the work that that process would have done.
#pragma once

namespace headroom::supervise {

/// The socket, which is not passed on to the program; -1 if it cannot be had. Names it in this process's environment.
int open_figures();

/// Takes the ledgers that have been handed in, once the socket is readable.
void take_figures(int listener);

/// After the program's end.
void see_to_figures(int listener);

}  // namespace headroom::supervise
