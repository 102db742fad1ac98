// See error_handlers.h.
#include "mpi/backend/objects/error_handlers.h"

#include <atomic>
#include <cstdarg>
#include <utility>

#include "mpi/services.h"

namespace headroom::mpi {
namespace {

constexpr int kMostHandlers = 64;

std::atomic<MPI_Comm_errhandler_function*> handler_functions[kMostHandlers];  // entries are never taken out

/// The function that the library calls for one of the program's functions. Open MPI passes two more arguments, MPICH one; where
/// there are fewer the registers' content is passed on, which nobody reads.
template <int kWhich>
void call_handler(MPI_Comm* comm, int* error, ...) {
  if (handlers_wait > 0) {
    error_that_waits = *error;
    return;
  }
  va_list list;
  va_start(list, error);
  void* const first = va_arg(list, void*);
  void* const second = va_arg(list, void*);
  va_end(list);
  handler_functions[kWhich].load(std::memory_order_relaxed)(comm, error, first, second);
}

template <int... kWhich>
MPI_Comm_errhandler_function* caller_at(int which, std::integer_sequence<int, kWhich...>) {
  static MPI_Comm_errhandler_function* const callers[] = {call_handler<kWhich>...};
  return callers[which];
}

/// The function that calls `function` unless handlers must wait.
MPI_Comm_errhandler_function* caller_of(MPI_Comm_errhandler_function* function) {
  for (int which = 0; function != nullptr && which < kMostHandlers; ++which) {
    MPI_Comm_errhandler_function* there = nullptr;
    if (handler_functions[which].compare_exchange_strong(there, function, std::memory_order_relaxed) || there == function) {
      return caller_at(which, std::make_integer_sequence<int, kMostHandlers>());
    }
  }
  return function;
}

}  // namespace

constinit thread_local int handlers_wait = 0;
constinit thread_local int error_that_waits = MPI_SUCCESS;

int serve_Comm_create_errhandler(MPI_Comm_errhandler_function* function, MPI_Errhandler* handler, Entry entry) {
  return real.Comm_create_errhandler[entry](caller_of(function), handler);
}

/// The same by its name in MPI 1.
int serve_Errhandler_create(MPI_Comm_errhandler_function* function, MPI_Errhandler* handler, Entry entry) {
  return real.Errhandler_create[entry](caller_of(function), handler);
}

}  // namespace headroom::mpi
