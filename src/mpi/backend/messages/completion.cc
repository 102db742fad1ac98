// See completion.h.
#include "mpi/backend/messages/completion.h"

#include <atomic>
#include <cstdint>

#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/collectives/nonblocking_collectives.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/messages/direct_requests.h"
#include "mpi/backend/messages/ending.h"
#include "mpi/backend/messages/library_parts.h"
#include "mpi/backend/messages/polling.h"
#include "mpi/backend/messages/request_contents.h"
#include "mpi/backend/messages/routes.h"
#include "mpi/backend/messages/starting.h"
#include "mpi/backend/messages/waiting.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/state.h"
#include "mpi/services.h"
#include "mpi/trampolines.h"

namespace headroom::mpi {
namespace {

constexpr uint64_t kPatienceOfCollectives = 1000;

/// The program frees a request: gives back the objects that it kept as a persistent one.
void forget_what_was_kept(DirectRequest& request) {
  if (request.communicator == nullptr) {
    return;
  }
  let_go_of(request.communicator);
  request.communicator = nullptr;
  if (request.datatype.layout != nullptr) {
    core->endpoint.let_go(request.datatype.layout);
  }
}

// Persistent requests keep what they were made with: the program may free the communicator and the datatype.

void keep_for_later(DirectRequest& request, const Route& route) {
  request.communicator = route.communicator;
  ++route.communicator->references;
  request.datatype.bytes = route.datatype->bytes;
  request.datatype.layout = route.datatype->layout;
  request.datatype.usable = route.datatype->usable;
  direct::keep(request.datatype.layout);
}

/// Makes a persistent request of ours.
int make_persistent(const Route& route, const Arguments& what, bool sends, MPI_Request* handle) {
  DirectRequest* request = take_request(what.comm);
  if (request == nullptr) {
    return raise_error(what.comm, MPI_ERR_NO_MEM);  // not the library's: the other side's messages do not go there
  }
  request->persistent = true;
  request->active = false;
  request->kind = sends ? RequestKind::kSend : RequestKind::kReceive;
  request->comm = what.comm;
  keep_for_later(*request, route);
  request->arguments = what;
  if (!sends && what.peer == MPI_ANY_SOURCE && route.communicator->spans) {
    (void)make_library_receive(what, &request->library);
  }
  *handle = request->handle;
  return MPI_SUCCESS;
}

int start_again(DirectRequest& request) {
  Arguments what = request.arguments;
  if (request.library == MPI_REQUEST_NULL) {  // else the communicator is there (messages/freed_communicators.h)
    what.comm = raises_on(request);
  }
  const Route route = {request.communicator, &request.datatype};
  request.seen = false;
  return request.kind == RequestKind::kSend ? start_send(request, route, what) : start_receive(request, route, what);
}

}  // namespace

Look look_at(MPI_Request* handle, MPI_Status* status, int& error, MPI_Comm& comm, bool seen) {
  error = MPI_SUCCESS;
  comm = MPI_COMM_NULL;
  if (*handle == MPI_REQUEST_NULL) {
    return Look::kNothing;
  }
  if (DirectRequest* request = direct_request_of(*handle)) {
    if (!request->active) {
      return Look::kNothing;
    }
    if (!try_to_complete(*request)) {
      return Look::kPending;
    }
    error = end_request(*request, handle, status, comm);
    return Look::kDone;
  }
  const InsideLibrary inside;
  // An inactive persistent request of the library's tests as done with an empty status; it counts as nothing only in the
  // forms that ask for any or some, and there the library's own answer is used.
  if (seen) {
    // MPICH 5.0.2's MPI_Test polls a file operation that was seen to be complete once more, which frees it ("unexpected value
    // in case statement"); its MPI_Wait does not.
    error = real.Wait[1](handle, status);
    return Look::kDone;
  }
  int done = 0;
  error = real.Test[1](handle, &done, status);
  waits_for_library = waits_for_library || done == 0;
  return done != 0 || error != MPI_SUCCESS ? Look::kDone : Look::kPending;
}

int finish_one(int error, MPI_Comm comm) {
  return error == MPI_SUCCESS || comm == MPI_COMM_NULL ? error : raise_error(comm, error);
}

void hasten(DirectRequest* request, uint64_t rounds) {
  for (; request != nullptr; request = request->also) {
    if (request->kind == RequestKind::kReceive && request->receiving.is_left.load(std::memory_order_relaxed)) {
      (void)core->endpoint.finish(request->receiving);
    } else if (request->kind == RequestKind::kSend && request->sending != nullptr &&
               rounds >= patience(request->sending->content.bytes)) {
      core->endpoint.copy_aside(request->sending, false);
    } else if (request->kind == RequestKind::kCollective && rounds >= kPatienceOfCollectives) {
      hasten_collective(*request->collective);
    }
  }
}

int serve_Wait(MPI_Request* request, MPI_Status* status, Entry entry) {
  if (DirectRequest* ours = direct_on ? direct_request_of(*request) : nullptr) {
    if (!ours->active) {
      set_empty_status(status);
      return MPI_SUCCESS;
    }
    uint64_t rounds = 0;
    wait_direct([&] {
      if (try_to_complete(*ours)) {
        return true;
      }
      hasten(ours, ++rounds);
      make_progress();
      return try_to_complete(*ours);
    });
    MPI_Comm comm = MPI_COMM_NULL;
    const int error = end_request(*ours, request, status, comm);
    return finish_one(error, comm);
  }
  if (!polls()) {
    const WaitInLibrary waiting;
    return real.Wait[entry](request, status);
  }
  const InsideLibrary inside;
  return poll_until_done([&](int* done) { return real.Test[1](request, done, status); });
}

int serve_Test(MPI_Request* request, int* flag, MPI_Status* status, Entry entry) {
  if (DirectRequest* ours = direct_on ? direct_request_of(*request) : nullptr) {
    *flag = 1;
    if (!ours->active) {
      set_empty_status(status);
      return MPI_SUCCESS;
    }
    if (!try_to_complete(*ours)) {
      make_progress();
      *flag = try_to_complete(*ours) ? 1 : 0;
    }
    if (*flag == 0) {
      hasten(ours, ++ours->tests);
      return after_direct_poll(false);
    }
    MPI_Comm comm = MPI_COMM_NULL;
    const int error = end_request(*ours, request, status, comm);
    return after_poll(finish_one(error, comm), true);
  }
  return poll_library(entry, [&](int profiled, int& error) {
    const bool is_none = *request == MPI_REQUEST_NULL;  // nothing is found so: a program may test each of several in turn
    error = real.Test[profiled](request, flag, status);
    return is_none ? Look::kNothing : look_by(*flag);
  });
}

int serve_Request_free(MPI_Request* handle, Entry entry) {
  DirectRequest* ours = direct_on ? direct_request_of(*handle) : nullptr;
  if (ours == nullptr) {
    return real.Request_free[entry](handle);
  }
  *handle = MPI_REQUEST_NULL;
  forget_what_was_kept(*ours);
  if (!ours->active) {
    recycle(ours);
    return MPI_SUCCESS;
  }
  leave_request(ours);
  make_progress();
  share_success();
  return MPI_SUCCESS;
}

int serve_Cancel(MPI_Request* handle, Entry entry) {
  DirectRequest* ours = direct_on ? direct_request_of(*handle) : nullptr;
  if (ours == nullptr) {
    return real.Cancel[entry](handle);
  }
  if (ours->kind == RequestKind::kCollective) {
    return raise_error(raises_on(*ours), MPI_ERR_REQUEST);  // MPI forbids it
  }
  make_progress();
  if (ours->active && !try_to_complete(*ours)) {
    if (ours->kind == RequestKind::kLibrary) {
      cancel_library_part(*ours);
    } else if (ours->kind == RequestKind::kReceive) {
      cancel_receive(*ours);
    } else {
      ours->cancelled = core->endpoint.cancel_send(ours->sending, &ours->cancelled) || ours->cancelled;
    }
  }
  return MPI_SUCCESS;
}

#define HEADROOM_INIT(Name, Count, Mode, Sends, Constness)                                                        \
  int serve_##Name(Constness void* buf, Count count, MPI_Datatype datatype, int peer, int tag, MPI_Comm comm,     \
                   MPI_Request* handle, Entry entry) {                                                            \
    if (direct_on) {                                                                                              \
      const Route route = (Sends) ? route_of_send(buf, count, datatype, peer, tag, comm)                          \
                                  : route_of_receive(buf, count, datatype, peer, tag, comm);                      \
      if (route.communicator != nullptr) {                                                                        \
        void* const buffer = const_cast<void*>(static_cast<const void*>(buf));                                    \
        return make_persistent(route, {buffer, count, datatype, peer, tag, comm, SendMode::Mode}, Sends, handle); \
      }                                                                                                           \
    }                                                                                                             \
    const Passing passing((Sends) ? peer : MPI_PROC_NULL, comm, count, datatype);                                 \
    const InsideLibrary inside;                                                                                   \
    return passing.ended(real.Name[entry](buf, count, datatype, peer, tag, comm, handle));                        \
  }

HEADROOM_INIT(Send_init, int, kStandard, true, const)
HEADROOM_INIT(Ssend_init, int, kSynchronous, true, const)
HEADROOM_INIT(Rsend_init, int, kReady, true, const)
HEADROOM_INIT(Bsend_init, int, kBuffered, true, const)
HEADROOM_INIT(Recv_init, int, kStandard, false, )
HEADROOM_INIT(Send_init_c, MPI_Count, kStandard, true, const)
HEADROOM_INIT(Ssend_init_c, MPI_Count, kSynchronous, true, const)
HEADROOM_INIT(Rsend_init_c, MPI_Count, kReady, true, const)
HEADROOM_INIT(Bsend_init_c, MPI_Count, kBuffered, true, const)
HEADROOM_INIT(Recv_init_c, MPI_Count, kStandard, false, )

int serve_Psend_init(const void* buf, int partitions, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
                     MPI_Info info, MPI_Request* request, Entry entry) {
  if (direct_on && dest != MPI_PROC_NULL) {
    core->count_passed(PassedFor::kPartitions, 0);
  }
  const InsideLibrary inside;
  return real.Psend_init[entry](buf, partitions, count, datatype, dest, tag, comm, info, request);
}

int serve_Start(MPI_Request* handle, Entry entry) {
  DirectRequest* ours = direct_on ? direct_request_of(*handle) : nullptr;
  if (ours != nullptr) {
    return start_again(*ours);
  }
  const InsideLibrary inside;
  return real.Start[entry](handle);
}

int serve_Startall(int count, MPI_Request requests[], Entry entry) {
  if (!has_direct(count, requests)) {
    const InsideLibrary inside;
    const WithoutSlot waiting;
    return real.Startall[entry](count, requests);
  }
  int error = MPI_SUCCESS;
  for (int index = 0; index < count && error == MPI_SUCCESS; ++index) {
    error = serve_Start(&requests[index], 1);
  }
  return error;
}

}  // namespace headroom::mpi
