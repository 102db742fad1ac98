// The functions of the layers below that backends call; see trampolines.h.
#pragma once

#include "mpi/trampolines.h"

namespace headroom::mpi {

const CoreFunctions& core_functions();

/// `function` is called when the program calls MPI_Abort, before the library does.
void call_before_abort(void (*function)());

}  // namespace headroom::mpi
