// Yielding inside the MPI library's own progress loop; see progress_hook.cc.
#pragma once

namespace headroom::mpi {

/// True once this process's MPI library has been seen to poll through the hook.
bool progress_hook_works();

}  // namespace headroom::mpi
