// One MPI binary interface: its library's functions and what the preloaded library serves.
//
// The backend is compiled once against each interface's mpi.h, which decides what a handle, a status and a constant are;
// nothing else differs.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include "mpi/real_functions.h"
#include "mpi/trampolines.h"

namespace headroom::mpi {

/// The one of its two names by which a function was called: 0 is MPI_..., 1 is PMPI_... (the places in RealFunctions).
using Entry = int;

inline const CoreFunctions* core = nullptr;

}  // namespace headroom::mpi
