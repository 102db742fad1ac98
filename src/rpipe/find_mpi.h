// The MPI library that the program has loaded, if rpipe_init() is to take its world.
//
// librpipe is linked with none: it looks which one is loaded by its SONAME, and opens a small library beside its own that was
// made for that binary interface (mpi_world.c).
#pragma once

#include "headroom/rpipe.h"

namespace headroom::rpipe {

/// Fills in who this rank is. -ENOTSUP, with a line on stderr: there is no MPI library, or it is not initialized.
int find_mpi(rpipe_bootstrap& bootstrap);

}  // namespace headroom::rpipe
