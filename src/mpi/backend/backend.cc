// The backend as the preloaded library sees it: one function, which takes what the backend needs of the layers below and gives
// an entry point for each function that is served.
#include "mpi/backend/abi.h"
#include "mpi/backend/entries.h"
#include "mpi/backend/guards.h"

namespace headroom::mpi {

extern "C" __attribute__((visibility("default"))) void headroom_backend_init(BackendRequest* request,
                                                                             const CoreFunctions* functions) {
  core = functions;
  depth_offset = reinterpret_cast<char*>(core->library_depth()) - static_cast<char*>(__builtin_thread_pointer());
  core->program_code(&program_begin, &program_bytes);
#define X(index, name)                                                                \
  real.name[0] = reinterpret_cast<decltype(+real.name[0])>(request->real[2 * index]); \
  real.name[1] = reinterpret_cast<decltype(+real.name[1])>(request->real[2 * index + 1]);
  HEADROOM_SERVED_FUNCTIONS(X)
#undef X
  enter_functions(*request);
}

}  // namespace headroom::mpi
