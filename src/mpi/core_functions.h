// The functions of the layers below that backends call; see trampolines.h.
#pragma once

#include "mpi/trampolines.h"

namespace headroom::mpi {

const CoreFunctions& core_functions();

/// A tool of the profiling interface is to see the calls that Headroom makes of the program's: so all messages go through the
/// MPI library. Before MPI_Init.
void note_tool_below();

/// `function` is called when the program calls MPI_Abort, before the library does.
void call_before_abort(void (*function)());

}  // namespace headroom::mpi
