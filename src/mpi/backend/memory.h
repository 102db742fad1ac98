// Memory of the backend's own, and MPI_Alloc_mem.
#pragma once

#include <cstddef>

namespace headroom::mpi {

/// Zeroed. A rank that cannot note what the others note would leave them waiting: then the job ends.
void* memory_or_abort(size_t bytes);

}  // namespace headroom::mpi
