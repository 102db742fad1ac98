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

/// Makes names that the MPI library lacks absent from this library's symbol table, so that a plug-in that asks weakly for
/// them (mpi4py) sees what it would see without Headroom. `lacks` says so by index in functions.txt.
void hide_names(bool (*lacks)(int index, void* context), void* context);

/// Hides what the loaded library lacks; where none is loaded yet, what could mislead a program that asks.
void hide_absent_names();

}  // namespace headroom::mpi
