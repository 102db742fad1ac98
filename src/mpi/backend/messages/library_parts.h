// The MPI library's share of calls that are direct otherwise.
//
// On a communicator that spans nodes a receive from any source waits for messages on both ways. It is posted in the library, so
// that its order among the other receives there, and the library's progress, are the library's own affair; and it is posted
// here, with a say: before it gets a message of a node-mate it must be free of the library. A library's receive is not
// cancelled for that: MPICH loses messages over UCX when a cancel races with an arrival. It is ended by a message of no bytes
// that this process sends to itself, the token. The library gives the token to the first receive that it has not given a
// message of another node yet, and that is the one whose turn it is here too: it is posted on both ways in one step, with the
// endpoint's lock, so they have the same order. (Locks are taken in this order: the endpoint's, then library_part_lock.) If
// there is none, the token is taken out again, and the node-mate's message goes to the next receive. A message that is there
// when a receive is posted is taken without bothering the library. (A token can be recognised: other messages from a process to
// itself never enter the library on such communicators.)
//
// Calls of two parts (MPI_Sendrecv_replace, MPI_Isendrecv) may have one part that is the library's.
#pragma once

#include "base/threads_lock.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/messages/direct_requests.h"
#include "mpi/backend/objects/error_handlers.h"
#include "mpi/backend/state.h"

namespace headroom::mpi {

struct Route;

extern base::ThreadsLock library_part_lock;  // of requests that several threads look at, and of the list
constinit extern thread_local bool has_library_part_lock;

/// The program's error handlers wait meanwhile (objects/error_handlers.h). Not taken again by a thread that has it: a handler
/// that cannot be made to wait may call a function that looks in the library, too.
class PartLock {
 public:
  PartLock() : takes_(several_threads && !has_library_part_lock) {
    if (takes_) {
      alone_ = library_part_lock.enter(*calling_threads);
      has_library_part_lock = true;
    }
  }
  ~PartLock() {
    if (takes_) {
      has_library_part_lock = false;
      library_part_lock.leave(alone_);
    }
  }
  PartLock(const PartLock&) = delete;
  PartLock& operator=(const PartLock&) = delete;

 private:
  const HandlersWait handlers_;
  bool takes_;
  bool alone_ = false;
};

/// Looks at the library's request; with the lock.
void look_at_library(DirectRequest& request);

/// Whether the library's request is over, and not by a token.
bool library_is_done(DirectRequest& request);

/// The receive waits in the library no more.
void leave_both_ways(DirectRequest& request);

/// A receive of the library's; in the large-count form where it is needed.
int receive_by_library(const Arguments& what, MPI_Request* handle);

/// A persistent receive of the library's.
int make_library_receive(const Arguments& what, MPI_Request* handle);

/// The library's judgement of a receive's arguments; nothing is received.
int judge_receive(const Arguments& what);

/// Begins a receive that may be from this node or another; MPI's error.
int start_receive_from_anywhere(DirectRequest& request, const Route& route, const Arguments& what);

/// Whether a receive that waits on both ways has got its message from the library.
bool library_took(DirectRequest& request);

/// The end of the library's request says whether that was in time.
void cancel_library_part(DirectRequest& request);

/// MPI_Cancel of a receive, on whichever way it waits.
void cancel_receive(DirectRequest& request);

/// Ends a part that was begun, since the call's other part could not be.
void abandon(DirectRequest& request);

/// Makes `request` a part that is the library's: `start` begins it.
template <typename Start>
int start_library_part(DirectRequest& request, MPI_Comm comm, Start start) {
  request.kind = RequestKind::kLibrary;
  request.active = true;
  request.cancelled = false;
  request.comm = comm;
  request.has_token = false;  // of what the request was before
  request.from_library = false;
  const InsideLibrary inside;
  const int error = start(&request.library);
  request.in_library = error == MPI_SUCCESS;
  return error;
}

}  // namespace headroom::mpi
