// The state that the job and this process have agreed on in MPI_Init.
#pragma once

#include "base/threads_lock.h"

namespace headroom::mpi {

inline bool direct_on = false;        // some messages do not enter the library (objects/communicators.h)
inline bool node_registers = false;   // the library registers memory with this node's network cards; nodes may differ
inline bool several_threads = false;  // may call: MPI_THREAD_MULTIPLE
inline base::CallingThreads* calling_threads = nullptr;
inline bool library_counts = false;     // collectives (collectives/collectives.h)
inline bool reductions_direct = false;  // whether all reductions may be direct

}  // namespace headroom::mpi
