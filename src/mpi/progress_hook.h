// Yielding inside the MPI library's own progress loop; see progress_hook.cc.
#pragma once

namespace headroom::mpi {

/// True once this process's MPI library has been seen to poll through the hook.
bool progress_hook_works();

/// Whether the hook has anything to do: not while ranks wait as the library likes.
void watch_progress(bool on);

}  // namespace headroom::mpi
