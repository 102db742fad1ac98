// See entries.h. (The entry points themselves are generated.)
#include "mpi/backend/entries.h"

#include <cstdint>

#include "mpi/backend/abi.h"
#include "mpi/backend/guards.h"

namespace headroom::mpi {

uintptr_t program_begin = 0;
uintptr_t program_bytes = 0;

bool count_if_inner(Entry entry, const void* caller) {
  if (library_depth() == 0) {
    if (!core->is_mpi_library(caller)) {
      return false;
    }
  } else if (!core->is_mpi_library(caller) && !(entry != 0 && core->is_program(caller))) {
    return false;
  }
  core->count_inner();
  return true;
}

}  // namespace headroom::mpi
