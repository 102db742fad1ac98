// See ending.h.
#include "mpi/backend/messages/ending.h"

#include <atomic>

#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/collectives/nonblocking_collectives.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/messages/direct_requests.h"
#include "mpi/backend/messages/library_parts.h"
#include "mpi/backend/messages/request_contents.h"
#include "mpi/backend/messages/starting.h"

namespace headroom::mpi {
namespace {

/// As conclude(), of a request with a second part.
int conclude_both(DirectRequest& request, MPI_Status* status) {
  DirectRequest* const also = request.also;
  request.also = nullptr;
  const int error = conclude_parts(request, *also, status);
  recycle(also);
  return error;
}

/// Requests that the program has freed before they were complete.
void look_after_freed_requests() {
  DirectRequest* looked_at = nullptr;
  {
    const LockAmongThreads lock(request_lock);
    looked_at = freed_requests;
    freed_requests = nullptr;
    freed_count = 0;
  }
  while (looked_at != nullptr) {
    DirectRequest* const request = looked_at;
    looked_at = request->next;
    if (try_to_complete(*request)) {
      drop_complete(*request);
      recycle(request);
    } else {
      const LockAmongThreads lock(request_lock);
      request->next = freed_requests;
      freed_requests = request;
      ++freed_count;
    }
  }
  const LockAmongThreads lock(request_lock);
  freed_and_looked_at.store(freed_count.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

}  // namespace

bool try_to_complete(DirectRequest& request) {
  bool complete = true;
  if (request.kind == RequestKind::kReceive) {
    complete = request.receiving.complete.load(std::memory_order_acquire) ||
               (request.receiving.is_left.load(std::memory_order_relaxed) && core->endpoint.finish(request.receiving)) ||
               (request.receiving.claim_message != nullptr && library_took(request));
  } else if (request.kind == RequestKind::kLibrary) {
    complete = library_is_done(request);
  } else if (request.kind == RequestKind::kCollective) {
    complete = advance_collective(*request.collective);
  } else if (request.sending != nullptr) {
    complete = core->endpoint.try_to_finish(request.sending);
    if (complete) {
      request.sending = nullptr;
    }
  }
  return complete && (request.also == nullptr || try_to_complete(*request.also));
}

int conclude_parts(DirectRequest& receive, DirectRequest& send, MPI_Status* status) {
  const int send_error = conclude(send, MPI_STATUS_IGNORE);
  const bool send_raised = raised_by_library;
  const int error = conclude(receive, status);
  if (error != MPI_SUCCESS) {
    return error;
  }
  raised_by_library = send_raised;
  return send_error;
}

int conclude(DirectRequest& request, MPI_Status* status) {
  int error = MPI_SUCCESS;
  if (request.also != nullptr) {
    return conclude_both(request, status);
  }
  raised_by_library = false;
  if (request.link_on_both_ways != nullptr) {
    leave_both_ways(request);
  }
  if (request.kind == RequestKind::kCollective) {
    error = end_collective(request.collective);
    request.collective = nullptr;
    set_status(status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0, false);
  } else if (request.from_library || request.kind == RequestKind::kLibrary) {
    error = request.library_error.error;
    raised_by_library = error != MPI_SUCCESS && !request.library_error.waits;
    set_status_of_library(status, request.library_status);
    request.from_library = false;
    core->endpoint.let_go(request.layout);
    request.layout = nullptr;
  } else if (request.kind == RequestKind::kReceive) {
    const direct::Receiving& receiving = request.receiving;
    if (receiving.cancelled) {
      set_status(status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0, true);
    } else {
      if (request.bounce != nullptr) {
        error = unpack_by_library(request);
      }
      error = receiving.truncated ? MPI_ERR_TRUNCATE : error;
      set_status(status, receiving.source, receiving.tag, receiving.truncated ? receiving.into.bytes : receiving.bytes, false);
    }
    if (request.layout != nullptr) {
      core->endpoint.let_go(request.layout);
      request.layout = nullptr;
    }
  } else {
    set_status(status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0, request.cancelled);
  }
  drop_bounce(request);
  if (__builtin_expect(request.copied != nullptr, 0)) {
    drop_copy(request);
  }
  request.active = false;
  return error;
}

void drop_complete(DirectRequest& request) {
  (void)conclude(request, MPI_STATUS_IGNORE);
  raised_by_library = false;
}

int end_request(DirectRequest& request, MPI_Request* handle, MPI_Status* status, MPI_Comm& comm) {
  share_success();
  comm = raises_on(request);
  const int error = conclude(request, status);
  if (raised_by_library) {  // of this request alone: others may end in the same call
    raised_by_library = false;
    comm = MPI_COMM_NULL;
  }
  if (!request.persistent) {
    *handle = MPI_REQUEST_NULL;
    recycle(&request);
  }
  return error;
}

void make_progress() {
  (void)core->endpoint.progress();
  if (__builtin_expect(freed_requests != nullptr, 0)) {
    look_after_freed_requests();
  }
}

}  // namespace headroom::mpi
