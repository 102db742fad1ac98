// The functions of the layers below that backends call; see trampolines.h.
#pragma once

#include "mpi/trampolines.h"

namespace headroom::mpi {

const CoreFunctions& core_functions();

/// A tool of the profiling interface is to see the calls that Headroom makes of the program's: so all messages go through the
/// MPI library. Before MPI_Init.
void note_tool_below();

}  // namespace headroom::mpi
