// See point_to_point.h.
#include "mpi/backend/messages/point_to_point.h"

#include <cstdint>

#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/messages/completion.h"
#include "mpi/backend/messages/direct_requests.h"
#include "mpi/backend/messages/ending.h"
#include "mpi/backend/messages/library_parts.h"
#include "mpi/backend/messages/polling.h"
#include "mpi/backend/messages/replacing.h"
#include "mpi/backend/messages/request_contents.h"
#include "mpi/backend/messages/routes.h"
#include "mpi/backend/messages/starting.h"
#include "mpi/backend/messages/waiting.h"
#include "mpi/backend/state.h"
#include "mpi/services.h"

namespace headroom::mpi {
namespace {

/// The common shape of the library's calls: `blocking`, or `start` a request and poll it.
template <typename Blocking, typename Start>
int block_or_poll(Blocking blocking, Start start, int peer, MPI_Status* status) {
  const InsideLibrary inside;
  if (peer == MPI_PROC_NULL || !polls()) {
    const WaitInLibrary waiting;
    return blocking();
  }
  MPI_Request request = MPI_REQUEST_NULL;
  const int error = start(&request);
  if (error != MPI_SUCCESS) {
    return error;
  }
  return poll_until_done([&](int* done) { return real.Test[1](&request, done, status); });
}

int send_directly(const Route& route, const Arguments& what) {
  if (what.mode == SendMode::kBuffered || !route.datatype->usable) {
    DirectRequest request;
    const int error = start_send(request, route, what);
    if (error == MPI_SUCCESS) {
      wait_for_send(request.sending);
      request.sending = nullptr;
      share_success();
      drop_complete(request);
    }
    return error;
  }
  // Needs no request: nobody else looks at it.
  direct::Sending* sending = nullptr;
  const uint64_t bytes = static_cast<uint64_t>(what.count) * route.datatype->bytes;
  const direct::SendOutcome outcome = core->endpoint.send(
      route.communicator->members[what.peer], {route.communicator->context, route.communicator->rank, what.tag},
      {static_cast<char*>(what.buffer), bytes, route.datatype->layout}, kind_of(what.mode), looks_for_send(bytes), sending);
  if (outcome == direct::SendOutcome::kPending) {
    wait_for_send(sending);
  } else {
    share_success();
  }
  return outcome == direct::SendOutcome::kNoMemory ? raise_error(what.comm, MPI_ERR_NO_MEM) : MPI_SUCCESS;
}

int receive_directly(const Route& route, const Arguments& what, MPI_Status* status) {
  if (what.peer >= 0 && route.datatype->usable && route.communicator->members[what.peer] >= 0) {
    // The shortest way: a message that comes at once needs no request.
    direct::NextMessage got;
    if (core->endpoint.receive_next(route.communicator->members[what.peer],
                                    {route.communicator->context, what.peer, what.tag == MPI_ANY_TAG ? direct::kAny : what.tag},
                                    {static_cast<char*>(what.buffer), static_cast<uint64_t>(what.count) * route.datatype->bytes,
                                     route.datatype->layout},
                                    got)) {
      set_status(status, what.peer, got.tag, got.bytes, false);
      share_success();
      return MPI_SUCCESS;
    }
  }
  DirectRequest request;
  int error = start_receive(request, route, what);
  if (error != MPI_SUCCESS) {
    return error;
  }
  wait_direct([&] {
    if (try_to_complete(request)) {
      return true;
    }
    make_progress();
    return try_to_complete(request);
  });
  share_success();
  error = conclude(request, status);
  return error == MPI_SUCCESS ? error : raise_error(what.comm, error);
}

[[gnu::always_inline]] inline int start_with_handle(const Route& route, const Arguments& what, bool sends,
                                                    MPI_Request* handle) {
  DirectRequest* request = take_request(what.comm);
  if (request == nullptr) {
    return raise_error(what.comm, MPI_ERR_NO_MEM);
  }
  const int error = sends ? start_send(*request, route, what) : start_receive(*request, route, what);
  if (error != MPI_SUCCESS) {
    recycle(request);
    return error;
  }
  *handle = request->handle;
  return MPI_SUCCESS;
}

// MPI_Sendrecv's parts go each their own way.

/// Finishes both parts of a call of which one at least is direct.
int finish_both(DirectRequest& receive, DirectRequest& send, MPI_Comm comm, MPI_Status* status) {
  bool received = false;
  bool sent = false;
  uint64_t rounds = 0;
  wait_direct([&] {
    make_progress();
    received = received || try_to_complete(receive);
    if (!sent) {
      sent = try_to_complete(send);
      if (!sent) {
        hasten(&send, ++rounds);
      }
    }
    return received && sent;
  });
  share_success();
  const int error = conclude_parts(receive, send, status);
  return error != MPI_SUCCESS ? raise_error(comm, error) : error;
}

/// Looks once in the library for a message that stays there. Where messages are direct, too, it may find the token of another
/// thread's receive (library_parts.h), which is nobody's message and gone at once. No other message of this process to itself
/// is there, so it needs no lock to tell. The next look finds the message that lies behind it.
int look_in_library(const Probed& probed, int profiled, int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
  if (probed.communicator == nullptr) {
    return real.Iprobe[profiled](source, tag, comm, flag, status);
  }
  MPI_Status found;
  const int error = real.Iprobe[profiled](source, tag, comm, flag, &found);
  if (error == MPI_SUCCESS && *flag != 0) {
    *flag = found.MPI_SOURCE != probed.communicator->rank ? 1 : 0;
    if (*flag != 0) {
      set_status_of_library(status, found);
    }
  }
  return error;
}

/// Looks once in the layer.
bool probe_directly(const Probed& probed, int source, int tag, MPI_Status* status) {
  if (probed.communicator == nullptr) {
    return false;
  }
  make_progress();
  direct::Found found;
  const bool there = core->endpoint.find(envelope_of(*probed.communicator, source, tag), found);
  if (there) {
    set_probed(status, found.envelope, found.bytes);
  }
  return there;
}

}  // namespace

#define HEADROOM_SEND(Name, Immediate, Count, Mode)                                                                            \
  int serve_##Name(const void* buf, Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm, Entry entry) {       \
    if (direct_on) {                                                                                                           \
      const Route route = route_of_send(buf, count, datatype, dest, tag, comm);                                                \
      if (route.communicator != nullptr) {                                                                                     \
        return send_directly(route, {const_cast<void*>(buf), count, datatype, dest, tag, comm, SendMode::Mode});               \
      }                                                                                                                        \
    }                                                                                                                          \
    const Passing passing(dest, comm, count, datatype);                                                                        \
    const int error =                                                                                                          \
        block_or_poll([=] { return real.Name[entry](buf, count, datatype, dest, tag, comm); },                                 \
                      [=](MPI_Request* request) { return real.Immediate[1](buf, count, datatype, dest, tag, comm, request); }, \
                      dest, MPI_STATUS_IGNORE);                                                                                \
    return passing.ended(error);                                                                                               \
  }                                                                                                                            \
  int serve_##Immediate(const void* buf, Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,                 \
                        MPI_Request* request, Entry entry) {                                                                   \
    if (direct_on) {                                                                                                           \
      const Route route = route_of_send(buf, count, datatype, dest, tag, comm);                                                \
      if (route.communicator != nullptr) {                                                                                     \
        return start_with_handle(route, {const_cast<void*>(buf), count, datatype, dest, tag, comm, SendMode::Mode}, true,      \
                                 request);                                                                                     \
      }                                                                                                                        \
    }                                                                                                                          \
    const Passing passing(dest, comm, count, datatype);                                                                        \
    const InsideLibrary inside;                                                                                                \
    return passing.ended(real.Immediate[entry](buf, count, datatype, dest, tag, comm, request));                               \
  }

HEADROOM_SEND(Send, Isend, int, kStandard)
HEADROOM_SEND(Ssend, Issend, int, kSynchronous)
HEADROOM_SEND(Rsend, Irsend, int, kReady)
HEADROOM_SEND(Bsend, Ibsend, int, kBuffered)
HEADROOM_SEND(Send_c, Isend_c, MPI_Count, kStandard)
HEADROOM_SEND(Ssend_c, Issend_c, MPI_Count, kSynchronous)
HEADROOM_SEND(Rsend_c, Irsend_c, MPI_Count, kReady)
HEADROOM_SEND(Bsend_c, Ibsend_c, MPI_Count, kBuffered)

#define HEADROOM_RECEIVE(Name, Immediate, Count)                                                                           \
  int serve_##Name(void* buf, Count count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm, MPI_Status* status,  \
                   Entry entry) {                                                                                          \
    if (direct_on) {                                                                                                       \
      const Route route = route_of_receive(buf, count, datatype, source, tag, comm);                                       \
      if (route.communicator != nullptr) {                                                                                 \
        return receive_directly(route, {buf, count, datatype, source, tag, comm, SendMode::kStandard}, status);            \
      }                                                                                                                    \
    }                                                                                                                      \
    return block_or_poll(                                                                                                  \
        [=] { return real.Name[entry](buf, count, datatype, source, tag, comm, status); },                                 \
        [=](MPI_Request* request) { return real.Immediate[1](buf, count, datatype, source, tag, comm, request); }, source, \
        status);                                                                                                           \
  }                                                                                                                        \
  int serve_##Immediate(void* buf, Count count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,                 \
                        MPI_Request* request, Entry entry) {                                                               \
    if (direct_on) {                                                                                                       \
      const Route route = route_of_receive(buf, count, datatype, source, tag, comm);                                       \
      if (route.communicator != nullptr) {                                                                                 \
        return start_with_handle(route, {buf, count, datatype, source, tag, comm, SendMode::kStandard}, false, request);   \
      }                                                                                                                    \
    }                                                                                                                      \
    const InsideLibrary inside;                                                                                            \
    return real.Immediate[entry](buf, count, datatype, source, tag, comm, request);                                        \
  }

HEADROOM_RECEIVE(Recv, Irecv, int)
HEADROOM_RECEIVE(Recv_c, Irecv_c, MPI_Count)

int send_and_receive(const Route& from, const Route& to, const Arguments& in, const Arguments& out, bool replaces,
                     MPI_Status* status) {
  DirectRequest receive;
  DirectRequest send;
  const int error = start_parts(receive, send, from, to, in, out, replaces);
  return error == MPI_SUCCESS ? finish_both(receive, send, in.comm, status) : error;
}

// Where both are the library's, and polled, the send is begun first, so that a wrong one takes no message away; nor may it go
// out if the receive is wrong.
#define HEADROOM_SEND_RECEIVE(Name, ImmediateSend, ImmediateReceive, Count)                                                    \
  int serve_##Name(const void* sendbuf, Count sendcount, MPI_Datatype sendtype, int dest, int sendtag, void* recvbuf,          \
                   Count recvcount, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm, MPI_Status* status,         \
                   Entry entry) {                                                                                              \
    if (direct_on) {                                                                                                           \
      const Route from = route_of_receive(recvbuf, recvcount, recvtype, source, recvtag, comm);                                \
      const Route to = route_of_send(sendbuf, sendcount, sendtype, dest, sendtag, comm);                                       \
      if (from.communicator != nullptr || to.communicator != nullptr) {                                                        \
        return send_and_receive(from, to, {recvbuf, recvcount, recvtype, source, recvtag, comm, SendMode::kStandard},          \
                                {const_cast<void*>(sendbuf), sendcount, sendtype, dest, sendtag, comm, SendMode::kStandard},   \
                                false, status);                                                                                \
      }                                                                                                                        \
    }                                                                                                                          \
    const Passing passing(dest, comm, sendcount, sendtype);                                                                    \
    const InsideLibrary inside;                                                                                                \
    if (!polls()) {                                                                                                            \
      const WaitInLibrary waiting;                                                                                             \
      return passing.ended(real.Name[entry](sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype, source, \
                                            recvtag, comm, status));                                                           \
    }                                                                                                                          \
    int error = judge_receive({recvbuf, recvcount, recvtype, source, recvtag, comm, SendMode::kStandard});                     \
    if (error != MPI_SUCCESS) {                                                                                                \
      return passing.ended(error);                                                                                             \
    }                                                                                                                          \
    MPI_Request send = MPI_REQUEST_NULL;                                                                                       \
    error = passing.ended(real.ImmediateSend[1](sendbuf, sendcount, sendtype, dest, sendtag, comm, &send));                    \
    if (error != MPI_SUCCESS) {                                                                                                \
      return error;                                                                                                            \
    }                                                                                                                          \
    MPI_Request receive = MPI_REQUEST_NULL;                                                                                    \
    error = real.ImmediateReceive[1](recvbuf, recvcount, recvtype, source, recvtag, comm, &receive);                           \
    if (error == MPI_SUCCESS) {                                                                                                \
      error = poll_until_done([&](int* done) { return real.Test[1](&receive, done, status); });                                \
    }                                                                                                                          \
    const int send_error = poll_until_done([&](int* done) { return real.Test[1](&send, done, MPI_STATUS_IGNORE); });           \
    return error != MPI_SUCCESS ? error : send_error;                                                                          \
  }

HEADROOM_SEND_RECEIVE(Sendrecv, Isend, Irecv, int)
HEADROOM_SEND_RECEIVE(Sendrecv_c, Isend_c, Irecv_c, MPI_Count)

void set_probed(MPI_Status* status, const direct::Envelope& envelope, uint64_t bytes) {
  set_status(status, envelope.source, envelope.tag, bytes, false);
}

int serve_Iprobe(int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status, Entry entry) {
  const Probed probed = ways_to_probe(source, tag, comm);
  *flag = probe_directly(probed, source, tag, status) ? 1 : 0;
  if (*flag != 0 || !probed.in_library) {
    return after_direct_poll(*flag != 0);
  }
  bool first = true;  // direct messages were looked for before
  return poll_library(entry, [&](int profiled, int& error) {
    *flag = !first && probe_directly(probed, source, tag, status) ? 1 : 0;
    first = false;
    if (*flag == 0) {
      error = look_in_library(probed, profiled, source, tag, comm, flag, status);
    }
    return look_by(*flag);
  });
}

int serve_Probe(int source, int tag, MPI_Comm comm, MPI_Status* status, Entry entry) {
  const Probed probed = ways_to_probe(source, tag, comm);
  if (probed.communicator != nullptr) {
    return wait_on_both_ways(
        probed, [&] { return probe_directly(probed, source, tag, status); },
        [&](int* found) { return look_in_library(probed, 1, source, tag, comm, found, status); });
  }
  if (source == MPI_PROC_NULL || !polls()) {
    const WaitInLibrary waiting;
    return real.Probe[entry](source, tag, comm, status);
  }
  const InsideLibrary inside;
  return poll_until_done([&](int* done) { return real.Iprobe[1](source, tag, comm, done, status); });
}

}  // namespace headroom::mpi
