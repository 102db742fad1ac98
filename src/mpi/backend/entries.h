// The entry points, which a call of the program's meets first: one for each of the two names of a function (generated;
// src/mpi/generate.py).
//
// Calls that the MPI library makes to itself pass straight through. They are told three ways, since none is right alone: the
// caller lies in the library or a plug-in of it: inner; in a Fortran or C++ binding library: the program; elsewhere: inner
// only if it came by a PMPI_ name while this thread is inside the library (a tool's own forwarding). User callbacks
// (operations, attribute functions, error handlers) are the program's code and count as the program.
#pragma once

#include <cstdint>

#include "mpi/backend/guards.h"
#include "mpi/trampolines.h"

namespace headroom::mpi {

/// Gives the preloaded library the entry points of the functions that its MPI library has.
void enter_functions(BackendRequest& request);

// The program's own code: most calls come from there.
extern uintptr_t program_begin;
extern uintptr_t program_bytes;

/// As is_inner(), which looks first whether the caller is the program; counts the call if it is inner.
bool count_if_inner(Entry entry, const void* caller);

/// Whether a call that came from `caller` is one that the MPI library makes to itself.
inline bool is_inner(Entry entry, const void* caller) {
  if (__builtin_expect(library_depth() == 0 && reinterpret_cast<uintptr_t>(caller) - program_begin < program_bytes, 1)) {
    return false;
  }
  return count_if_inner(entry, caller);
}

}  // namespace headroom::mpi
