// Starting Headroom's own threads: they block every signal (the program's handlers must not run on them), have a small stack
// of their own, and are not seen by the program's pthread_create interposition.
#pragma once

#include <pthread.h>

#include <cstdint>

namespace headroom::base {

/// Starts a detached thread; false if the system refuses. `name`: what debuggers and /proc/PID/task/TID/comm call it, at most
/// 15 characters; a literal.
bool start_thread(const char* name, void* (*body)(void*), void* argument);

/// True on a thread that start_thread() made.
bool on_own_thread();

/// Whether start_thread() made the thread with that number (the kernel's). Any thread may ask.
bool is_own_thread(int32_t number);

}  // namespace headroom::base
