// Entries of the trampolines' table that lead straight to the MPI library, because their wrapper would have nothing to do.
//
// A wrapper costs about 45 ns a call, which an 8-byte message between two ranks that fit in memory would notice. So once it is
// known how this process waits (the end of MPI_Init), the entries of calls made often leave their wrappers out, and come
// back to them when memory becomes short or ranks join (both told by the pager; joining also looked at after MPI_Comm_spawn and
// the like). While a trace is taken, calls that may wait keep their wrappers, which tell of waits.
//
// A call that is under way then ends as it began, in the library. That is what it would have done with its wrapper too: how a
// call waits is decided when it begins.
#pragma once

#include <atomic>

#include "mpi/trampolines.h"

extern "C" std::atomic<void*> headroom_mpi_table[];

namespace headroom::mpi {

/// Lets each entry lead to its wrapper, or to the library, or to `missing`. `request` must stay as it is from now on.
void fill_table(const BackendRequest& request, void* missing);

/// Looks anew at how this process waits, and lets the entries lead where they should. Any thread; blocks nobody.
void choose_shortcuts();

/// Some messages do not enter the MPI library; calls about messages have no shortcuts then. Before ways are chosen.
void set_direct(bool on);

/// The job's collectives take their nonblocking forms, or do not; they have no shortcuts then.
void set_nonblocking_collectives(bool on);

}  // namespace headroom::mpi
