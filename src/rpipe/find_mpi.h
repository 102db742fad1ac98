// The MPI library that the program has loaded, if rpipe_init() is to take its world.
//
// librpipe is linked with none: it looks which one is loaded by its SONAME, and opens a small library beside its own that was
// made for that binary interface (mpi_world.c).
#pragma once

#include "headroom/rpipe.h"
#include "rpipe/transport.h"

namespace headroom::rpipe {

/// Fills in this rank's number, and how it gets messages to others. -ENOTSUP, with a line on stderr: there is no MPI library,
/// or it is not initialized.
int find_mpi(rpipe_bootstrap& bootstrap, const rpipe_transport*& messages);

}  // namespace headroom::rpipe
