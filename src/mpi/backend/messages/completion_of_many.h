// Completion of several requests at once.
//
// Arrays without a request of ours go to the library as they are; in mixed ones each of the library's requests is tested by
// itself.
#pragma once

#include "mpi/backend/abi.h"

namespace headroom::mpi {

/// Whether a call about several requests looks at it; of the library's every one but MPI_REQUEST_NULL.
bool is_active_request(MPI_Request handle);

/// After a look for any: nothing was found so, nor is anything waited for.
inline bool is_none_active(int flag, int index) { return flag != 0 && index == MPI_UNDEFINED; }

}  // namespace headroom::mpi
