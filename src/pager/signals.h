// SIGSEGV as the sigsegv engine needs it: our handler first, the program's behind it.
//
// The program may install a handler of its own, ask for the current one, or block the signal; it sees what it would see
// without Headroom, but our handler stays in place and the signal stays deliverable in every thread. signal_wrappers.cc in
// heap/ interposes sigaction, signal, sigprocmask and pthread_sigmask; the functions that it calls are in pager.h.
#pragma once

#include <signal.h>

namespace headroom::pager {

/// Puts our handler in place; the handler that was there becomes "the program's handler". Idempotent.
void install_fault_handler();

/// In a forked child: another thread of the parent's may have been inside.
void forget_signals_of_parent();

/// Serves a fault in evictable memory; false if the address is not ours. Async-signal-safe.
bool serve_signal_fault(const siginfo_t& info, const void* context);

}  // namespace headroom::pager
