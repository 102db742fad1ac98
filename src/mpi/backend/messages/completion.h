// Completion calls.
//
// Wait forms are Test forms, polled, where blocking calls are; Test forms and probes that keep finding nothing give way to
// ranks that could compute. An array of requests may hold the library's and ours mixed: the library sees only its own.
#pragma once

#include <cstdint>

#include "mpi/backend/abi.h"
#include "mpi/backend/messages/direct_requests.h"
#include "mpi/backend/messages/ending.h"
#include "mpi/backend/messages/polling.h"
#include "mpi/backend/messages/waiting.h"
#include "mpi/backend/state.h"

namespace headroom::mpi {

/// The end of a look at what is direct alone: MPI_SUCCESS, after what a program that polls owes to others.
inline int after_direct_poll(bool found) {
  if (found) {
    share_success();
  } else {
    poll_library_at_times();
  }
  return after_poll(MPI_SUCCESS, found);
}

/// Whether any of the requests is ours.
inline bool has_direct(int count, const MPI_Request requests[]) {
  for (int index = 0; direct_on && index < count; ++index) {
    if (direct_request_of(requests[index]) != nullptr) {
      return true;
    }
  }
  return false;
}

/// Looks at `*handle` and ends it if it is complete; `error` is its own, `comm` whose handler is still to be called for it.
/// `seen` says that it was seen to be complete.
Look look_at(MPI_Request* handle, MPI_Status* status, int& error, MPI_Comm& comm, bool seen);

/// The status with that index, where the program wants any.
inline MPI_Status* status_at(MPI_Status statuses[], int index) {
  return statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[index];
}

/// The end of a call about one request.
int finish_one(int error, MPI_Comm comm);

/// Sends that wait for receivers that do not come are copied aside; called again and again by a rank that waits.
void hasten(DirectRequest* request, uint64_t rounds);

}  // namespace headroom::mpi
