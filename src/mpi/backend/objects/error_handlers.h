// When the program's error handlers are called.
//
// The library calls them in the middle of its own calls. Some of these are made while a lock of ours is held: a receive that
// waits on both ways is looked at before it gets a node-mate's message (messages/library_parts.h), in the middle of matching. A
// handler may communicate there, or wait for another thread that does, and would wait for what waits for it. So the library is
// given a function of ours for each of the program's, which makes a note of the error where handlers must wait (HandlersWait);
// the request's end, or the call, raises it when nothing is held any more. That is also when the program expects
// it: in the call that ends the request, not in one about something else.
//
// Not so for handlers that a Fortran binding enters past MPI_Comm_create_errhandler (Open MPI's), and for more than
// kMostHandlers functions: these run where the library calls them.
#pragma once

#include "mpi/backend/abi.h"

namespace headroom::mpi {

constinit extern thread_local int handlers_wait;  // for so many HandlersWait
constinit extern thread_local int error_that_waits;

/// The error that a call of the library's returned, and whether its handler is still to be called.
struct LibraryError {
  int error = MPI_SUCCESS;
  bool waits = false;
};

/// While one lives no handler of the program's is called by this thread.
class HandlersWait {
 public:
  HandlersWait() {
    ++handlers_wait;
    error_that_waits = MPI_SUCCESS;
  }
  ~HandlersWait() { --handlers_wait; }
  HandlersWait(const HandlersWait&) = delete;
  HandlersWait& operator=(const HandlersWait&) = delete;

  /// The error of a call that returned `said`: MPICH says MPI_SUCCESS once a handler was called.
  static LibraryError of_call(int said) {
    const int waiting = error_that_waits;
    error_that_waits = MPI_SUCCESS;
    return waiting != MPI_SUCCESS ? LibraryError{waiting, true} : LibraryError{said, false};
  }
};

}  // namespace headroom::mpi
