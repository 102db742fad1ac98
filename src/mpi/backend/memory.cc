// See memory.h.
#include "mpi/backend/memory.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "mpi/backend/abi.h"
#include "mpi/backend/failing.h"
#include "mpi/backend/state.h"
#include "mpi/services.h"

namespace headroom::mpi {

int serve_Alloc_mem(MPI_Aint size, MPI_Info info, void* baseptr, Entry entry) {
  void* place = size < 0 ? nullptr : core->allocate(static_cast<uint64_t>(size), direct_on);
  if (place == nullptr) {
    return real.Alloc_mem[entry](size, info, baseptr);
  }
  memcpy(baseptr, &place, sizeof place);
  return MPI_SUCCESS;
}

int serve_Free_mem(void* base, Entry entry) { return core->release(base) ? MPI_SUCCESS : real.Free_mem[entry](base); }

void* memory_or_abort(size_t bytes) {
  void* memory = calloc(1, bytes);
  if (memory == nullptr) {
    char what[64];
    (void)snprintf(what, sizeof what, "an allocation of %zu bytes", bytes);
    end_job(what, MPI_ERR_NO_MEM);
  }
  return memory;
}

}  // namespace headroom::mpi
