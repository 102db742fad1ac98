// What Headroom says, on standard error, one write(2) a line so that lines of different ranks do not mix.
//
// Every line begins with "headroom: error:" or "headroom: warning:" and the rank or, before it is known, the process. die() is
// for errors after which the program's memory could not be trusted or a forced choice cannot be had: it prints and ends the
// process at once, without running exit handlers (they would touch memory). All functions are safe in signal handlers and in
// the pager thread: they format into a buffer on the stack and allocate nothing.
#pragma once

namespace headroom::base {

/// Sets the rank that lines begin with; -1 until MPI_Init.
void set_log_rank(int rank);

/// Always said. Longer lines than 1 KiB are cut.
void log_warning(const char* format, ...) __attribute__((format(printf, 1, 2)));
/// The same of what its caller then ends by.
void log_error(const char* format, ...) __attribute__((format(printf, 1, 2)));
/// Said with HEADROOM_LOG=debug.
void log_debug(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// Called by die() before the process ends, so that others can be told. nullptr: nothing is called.
void set_death_hook(void (*hook)());

/// Prints and ends the process with exit status 2.
[[noreturn]] void die(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace headroom::base
