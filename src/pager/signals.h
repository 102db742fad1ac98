// SIGSEGV as the sigsegv engine needs it: our handler first, the program's behind it.
//
// The program may install a handler of its own, ask for the current one, or block the signal; it sees what it would see
// without Headroom, but our handler stays in place and the signal stays deliverable in every thread. signal_wrappers.cc in
// heap/ interposes sigaction, signal, sigprocmask and pthread_sigmask and calls these functions.
#pragma once

#include <signal.h>

namespace headroom::pager {

/// Puts our handler in place; the handler that was there becomes "the program's handler". Idempotent.
void install_fault_handler();

/// True once our handler is in place.
bool fault_handler_installed();

/// sigaction() for SIGSEGV as the program sees it.
void exchange_program_action(const struct sigaction* action, struct sigaction* old);

/// In a forked child: another thread of the parent's may have been inside.
void forget_signals_of_parent();

/// A mask of the program's without SIGSEGV, where our handler must stay deliverable; it may be put into `place`.
const sigset_t* without_fault_signal(const sigset_t* set, sigset_t& place);

/// Serves a fault in evictable memory; false if the address is not ours. Async-signal-safe.
bool serve_signal_fault(const siginfo_t& info, const void* context);

}  // namespace headroom::pager
