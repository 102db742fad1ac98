// Which MPI library this process uses: found among the loaded objects by SONAME.
#pragma once

#include <cstdint>

namespace headroom::mpi {

enum class Abi : int { kNone = -1, kMpich = 0, kOpenMpi, kStandard };

struct Library {
  Abi abi = Abi::kNone;
  char path[1024] = {};
};

/// Finds the loaded MPI library. With several, the one that the code at `caller` depends on (nullptr: the first).
Library find_library(const void* caller);

/// "mpich", "openmpi", "standard": as in the setting `mpi`, and in the backends' file names.
const char* abi_name(Abi abi);

}  // namespace headroom::mpi
