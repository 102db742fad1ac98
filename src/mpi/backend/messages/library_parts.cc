// See library_parts.h.
#include "mpi/backend/messages/library_parts.h"

#include <atomic>
#include <cstdint>

#include "base/threads_lock.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/messages/direct_requests.h"
#include "mpi/backend/messages/ending.h"
#include "mpi/backend/messages/request_contents.h"
#include "mpi/backend/messages/routes.h"
#include "mpi/backend/messages/starting.h"
#include "mpi/backend/messages/waiting.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/objects/error_handlers.h"

namespace headroom::mpi {
namespace {

DirectRequest* on_both_ways = nullptr;
DirectRequest* chosen = nullptr;  // has the token for the message that is asked about now

void enter_both_ways(DirectRequest& request) {
  request.next_on_both_ways = on_both_ways;
  request.link_on_both_ways = &on_both_ways;
  if (on_both_ways != nullptr) {
    on_both_ways->link_on_both_ways = &request.next_on_both_ways;
  }
  on_both_ways = &request;
}

/// The receive that the library gives the token to, or nullptr if it has messages for all of them.
DirectRequest* choose(const DirectRequest& asked, int tag, uint64_t message) {
  const InsideLibrary inside;
  const MPI_Comm comm = asked.arguments.comm;
  MPI_Request sent = MPI_REQUEST_NULL;
  real.Isend[1](nullptr, 0, MPI_BYTE, asked.own_rank, tag, comm, &sent);
  DirectRequest* found = nullptr;
  for (int back = 0; found == nullptr && back == 0;) {
    for (DirectRequest* each = on_both_ways; each != nullptr && found == nullptr; each = each->next_on_both_ways) {
      if (each->in_library && each->arguments.comm == comm) {
        look_at_library(*each);
        found = each->has_token ? each : nullptr;
      }
    }
    MPI_Message token = MPI_MESSAGE_NULL;
    if (found == nullptr) {
      real.Improbe[1](asked.own_rank, tag, comm, &back, &token, MPI_STATUS_IGNORE);
    }
    if (back != 0) {
      real.Mrecv[1](nullptr, 0, MPI_BYTE, &token, MPI_STATUS_IGNORE);
    }
  }
  real.Wait[1](&sent, MPI_STATUS_IGNORE);
  if (found != nullptr) {
    found->token_for = message;
  }
  return found;
}

/// Claims the node-mate's message that is asked about for `request`; false if it is to go elsewhere.
bool claim_message(DirectRequest& request, int tag, uint64_t message) {
  const PartLock lock;
  look_at_library(request);
  if (request.has_token) {
    request.has_token = false;  // for this message, or for one that went elsewhere
    return true;
  }
  const bool is_chosen = chosen != nullptr && chosen->has_token && chosen->token_for == message;
  if (!request.in_library || is_chosen) {
    return false;
  }
  chosen = choose(request, tag, message);
  if (chosen != &request) {
    return false;
  }
  request.has_token = false;
  return true;
}

/// Begins the library's part; with the lock.
LibraryError post_in_library(DirectRequest& request) {
  const InsideLibrary inside;
  const LibraryError error =
      HandlersWait::of_call(request.library != MPI_REQUEST_NULL ? real.Start[1](&request.library)
                                                                : receive_by_library(request.arguments, &request.library));
  request.in_library = error.error == MPI_SUCCESS;
  return error;
}

/// Begins the library's part of a receive; once more if it has a token that is not for the message it got.
bool begin_in_library(DirectRequest& request) {
  const PartLock lock;
  const bool again = request.link_on_both_ways != nullptr;
  if (again && !request.has_token) {
    return false;
  }
  request.has_token = false;
  request.library_error = post_in_library(request);
  if (request.library_error.error != MPI_SUCCESS) {
    return false;
  }
  if (!again) {
    enter_both_ways(request);
    request.receiving.claim_message = [](void* owner, int32_t tag, uint64_t message) {
      return claim_message(*static_cast<DirectRequest*>(owner), tag, message);
    };
    core->count_receive_on_both_ways();
  }
  return true;
}

}  // namespace

base::ThreadsLock library_part_lock;
constinit thread_local bool has_library_part_lock = false;

void look_at_library(DirectRequest& request) {
  if (!request.in_library) {
    return;
  }
  const InsideLibrary inside;
  int done = 0;
  request.library_error = HandlersWait::of_call(real.Test[1](&request.library, &done, &request.library_status));
  const int error = request.library_error.error;
  request.in_library = done == 0 && error == MPI_SUCCESS;
  waits_for_library = waits_for_library || request.in_library;
  if (!request.in_library && request.link_on_both_ways != nullptr && error == MPI_SUCCESS &&
      request.library_status.MPI_SOURCE == request.own_rank) {
    int cancelled = 0;
    real.Test_cancelled[1](&request.library_status, &cancelled);
    request.has_token = cancelled == 0;
  }
}

bool library_is_done(DirectRequest& request) {
  const PartLock lock;
  look_at_library(request);
  return !request.in_library && !request.has_token;
}

void leave_both_ways(DirectRequest& request) {
  const PartLock lock;
  *request.link_on_both_ways = request.next_on_both_ways;
  if (request.next_on_both_ways != nullptr) {
    request.next_on_both_ways->link_on_both_ways = request.link_on_both_ways;
  }
  request.link_on_both_ways = nullptr;
  chosen = chosen == &request ? nullptr : chosen;
}

int receive_by_library(const Arguments& what, MPI_Request* handle) {
  return what.count <= INT32_MAX
             ? real.Irecv[1](what.buffer, static_cast<int>(what.count), what.datatype, what.peer, what.tag, what.comm, handle)
             : real.Irecv_c[1](what.buffer, what.count, what.datatype, what.peer, what.tag, what.comm, handle);
}

int make_library_receive(const Arguments& what, MPI_Request* handle) {
  const InsideLibrary inside;
  return what.count <= INT32_MAX
             ? real.Recv_init[1](what.buffer, static_cast<int>(what.count), what.datatype, what.peer, what.tag, what.comm,
                                 handle)
             : real.Recv_init_c[1](what.buffer, what.count, what.datatype, what.peer, what.tag, what.comm, handle);
}

int judge_receive(const Arguments& what) {
  MPI_Request judged = MPI_REQUEST_NULL;
  const int error = make_library_receive(what, &judged);
  if (error == MPI_SUCCESS) {
    real.Request_free[1](&judged);
  }
  return error;
}

int start_receive_from_anywhere(DirectRequest& request, const Route& route, const Arguments& what) {
  const int error = prepare_receive(request, *route.datatype, what);
  if (error != MPI_SUCCESS) {
    return error;
  }
  request.arguments = what;
  request.receiving.envelope = envelope_of(*route.communicator, what.peer, what.tag);
  request.receiving.member = -1;
  request.own_rank = route.communicator->rank;
  request.receiving.owner = &request;
  request.receiving.begin_elsewhere = [](void* owner) { return begin_in_library(*static_cast<DirectRequest*>(owner)); };
  if (core->endpoint.receive_elsewhere_too(request.receiving)) {
    return MPI_SUCCESS;
  }
  core->endpoint.let_go(request.layout);
  request.layout = nullptr;
  forget_start(request);
  const LibraryError& said = request.library_error;
  return said.waits ? raise_error(request.comm, said.error) : said.error;
}

bool library_took(DirectRequest& request) {
  if (request.from_library) {
    return true;
  }
  if (!library_is_done(request)) {
    if (request.has_token) {  // and no message, since another one that was posted before got that
      core->endpoint.begin_elsewhere_again(request.receiving);
    }
    return request.receiving.complete.load(std::memory_order_acquire);
  }
  if (!core->endpoint.withdraw(request.receiving)) {
    return request.receiving.complete.load(std::memory_order_acquire);
  }
  int cancelled = 0;
  real.Test_cancelled[1](&request.library_status, &cancelled);
  if (cancelled != 0) {
    return core->endpoint.cancel_receive(request.receiving);
  }
  request.from_library = true;
  return true;
}

void cancel_library_part(DirectRequest& request) {
  const PartLock lock;
  if (request.in_library) {
    const InsideLibrary inside;
    real.Cancel[1](&request.library);
  }
}

void cancel_receive(DirectRequest& request) {
  if (request.receiving.claim_message != nullptr) {
    cancel_library_part(request);
  }
  if (request.receiving.claim_message == nullptr || request.has_token) {
    (void)core->endpoint.cancel_receive(request.receiving);
  }
}

void abandon(DirectRequest& request) {
  if (request.kind == RequestKind::kLibrary) {
    cancel_library_part(request);
  } else if (request.kind == RequestKind::kReceive) {
    cancel_receive(request);
  }
  wait_direct([&] {
    make_progress();
    if (request.kind == RequestKind::kSend && request.sending != nullptr) {
      core->endpoint.copy_aside(request.sending, true);
    }
    return try_to_complete(request);
  });
  drop_complete(request);
}

}  // namespace headroom::mpi
