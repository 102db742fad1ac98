// The MPI library that this process uses: found among the loaded objects by SONAME.
#pragma once

#include <cstdint>

#include "base/mpi_libraries.h"

namespace headroom::mpi {

using Abi = base::MpiInterface;

struct Library {
  Abi abi = Abi::kNone;
  char path[1024] = {};
};

/// Finds the loaded MPI library. With several, the one that the code at `caller` depends on (nullptr: the first).
Library find_library(const void* caller);

}  // namespace headroom::mpi
