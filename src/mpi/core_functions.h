// The functions of the layers below that backends call; see trampolines.h.
#pragma once

#include "mpi/trampolines.h"

namespace headroom::mpi {

const CoreFunctions& core_functions();

/// Makes transports of MPI libraries copy, or excludes them, in the environment: before the program begins, which may fetch the
/// library's functions from the library's own handle and never come by a wrapper.
void prepare_environment();

/// A tool of the profiling interface is to see the calls that Headroom makes of the program's: so all messages go through the
/// MPI library. Before MPI_Init.
void note_tool_below();

/// `function` is called when the program calls MPI_Abort, before the library does.
void call_before_abort(void (*function)());

}  // namespace headroom::mpi
