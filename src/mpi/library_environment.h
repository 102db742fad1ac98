// The environment variables that the MPI library gets, in place of those that the user has set.
//
// Libraries read them when MPI begins; a program may get at MPI's functions past Headroom's wrappers, so they are set before
// the program begins. Not by setenv(): shells define that themselves, and it must not be called before they have begun. The
// environment as it was stays whole, since other threads may be reading it; the new texts can be written to, as shells do.
#pragma once

#include <cstddef>

namespace headroom::mpi {

inline constexpr size_t kMostName = 48;
inline constexpr size_t kMostValue = 512;

/// The value that the user has set, whatever was made of it since; nullptr: none.
const char* users_value(const char* name);
/// The value that is set now.
const char* value_now(const char* name);
/// Whether something was set in its place before.
bool was_changed(const char* name);

/// Sets the value that the library is to read, once apply_changes() is called; nullptr: none.
void set_for_library(const char* name, const char* value);
void apply_changes();

/// Notes, for a message, a setting of the user's that was overridden ("UCX_TLS=rc -> ^cma; ..."), since forget_overridden().
void note_overridden(const char* name, const char* before, const char* after);
void forget_overridden();
const char* overridden_settings();

}  // namespace headroom::mpi
