// The facts that a request tells the program, and content that the library packs for it.
//
// Statuses are filled in as the library's own would be, each interface in its way. An error is raised where no lock is held, by
// the handler of the communicator that the request belongs to, unless the library has done so. Content of a datatype that
// cannot be compiled (objects/datatypes.h) is packed by the library into memory of the request's, its bounce, and unpacked at
// the request's end.
#pragma once

#include <cstdint>

#include "mpi/backend/abi.h"
#include "mpi/backend/messages/direct_requests.h"

namespace headroom::mpi {

/// Fills in a status, unless the program ignores it: of a message, of one of the library's, of none.
void set_status(MPI_Status* status, int source, int tag, uint64_t bytes, bool cancelled);
void set_status_of_library(MPI_Status* status, const MPI_Status& from);
void set_empty_status(MPI_Status* status);

/// The error that conclude() has just returned to this thread was the library's, which has called the handler.
constinit extern thread_local bool raised_by_library;

constinit extern thread_local int raising_errors;  // calls of handlers that this thread is in

/// Calls the communicator's error handler, unless the library has done so for this error; returns the error.
int raise_error(MPI_Comm comm, int error);

/// Makes memory for what the library packs; not from the arena, and not from the C library's heap while a lock may be held.
char* make_bounce(DirectRequest& request, uint64_t bytes);

/// Frees the bounce and the copy of its datatype, if there are any.
[[gnu::noinline]] void drop_bounce_there_is(DirectRequest& request);

/// The same, at the cost of a look where there are none.
inline void drop_bounce(DirectRequest& request) {
  if (__builtin_expect(request.bounce != nullptr || request.unpacked_as != MPI_DATATYPE_NULL, 0)) {
    drop_bounce_there_is(request);
  }
}

/// Memory for content that the library will unpack.
bool make_bounce_to_unpack(DirectRequest& request, uint64_t bytes, MPI_Datatype datatype);

/// Packs content into the request's bounce; false: no memory, or the library refuses.
bool pack_by_library(DirectRequest& request, const void* buffer, MPI_Count count, MPI_Datatype datatype, uint64_t bytes);

/// By a message of the library's to itself, which fills part of an element, too: a shorter message than was asked for may end
/// within one. Returns the library's error.
int unpack_by_library(DirectRequest& request);

}  // namespace headroom::mpi
