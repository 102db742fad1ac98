// How requests end.
//
// try_to_complete() looks, and makes no progress but the request's own; conclude() says what the end means for the program and
// gives back what the request had. Requests that the program has freed are looked after by the next call that makes progress.
#pragma once

#include <atomic>
#include <cstdint>

#include "mpi/backend/abi.h"
#include "mpi/backend/objects/communicators.h"

namespace headroom::mpi {

struct DirectRequest;

/// Goes on with an active request itself, and nothing else; whether it is complete now.
bool try_to_complete(DirectRequest& request);

/// Tells the program the end of a request: its status, and MPI_SUCCESS or the error (not raised yet).
int conclude(DirectRequest& request, MPI_Status* status);

/// The same of a receive and a send that end together. The error is the receive's, or else the send's.
int conclude_parts(DirectRequest& receive, DirectRequest& send, MPI_Status* status);

/// As conclude(), where the program does not hear of errors any more.
void drop_complete(DirectRequest& request);

/// A program whose calls all succeed at once never waits, and the library never gets to what is under way there: others may
/// wait for just that. So every so often a call that has succeeded looks. (Several threads may lose some of the count.)
inline void share_success() {
  constexpr uint32_t kEach = 256;
  static std::atomic<uint32_t> successes{0};
  const uint32_t count = successes.load(std::memory_order_relaxed) + 1;
  successes.store(count, std::memory_order_relaxed);
  if (__builtin_expect(count % kEach == 0, 0)) {
    (void)poke_library();
  }
}

/// Ends a request of the program's: its handle becomes MPI_REQUEST_NULL, or inactive. `comm`: whose handler is to be called for
/// its error; MPI_COMM_NULL if the library has done that.
int end_request(DirectRequest& request, MPI_Request* handle, MPI_Status* status, MPI_Comm& comm);

/// Goes on with what is under way, and ends requests that the program has freed.
void make_progress();

}  // namespace headroom::mpi
