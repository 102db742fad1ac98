// Communicators that the program frees while requests on them are under way, or persistent.
//
// The library knows nothing of our requests, and may give the handle to another communicator at once. So the errors of these
// requests are raised on a stand-in, a communicator of this process alone that has the freed one's error handler. Stand-ins are
// used again, and given back when another one is needed and nobody uses them: a library has some thousand communicators. Only a
// receive that waits on both ways (messages/library_parts.h) needs the communicator itself: the library gets that back once
// none does.
#pragma once

#include "mpi/backend/abi.h"

namespace headroom::mpi {

/// Before `comm` is freed: requests and messages in use on it get a stand-in.
void give_stand_ins(MPI_Comm comm);

/// Whether `comm` must stay the library's for now although the program frees it.
bool keep_for_requests(MPI_Comm comm);

/// Called when communicators are made and freed, not when requests end: that is no time for the program's delete functions.
void free_kept_communicators(bool all);

/// Before MPI_Finalize.
void end_stand_ins();

}  // namespace headroom::mpi
