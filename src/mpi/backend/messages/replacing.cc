// See replacing.h.
#include "mpi/backend/messages/replacing.h"

#include <cstdint>

#include "mpi/backend/guards.h"
#include "mpi/backend/messages/direct_requests.h"
#include "mpi/backend/messages/library_parts.h"
#include "mpi/backend/messages/point_to_point.h"
#include "mpi/backend/messages/request_contents.h"
#include "mpi/backend/messages/routes.h"
#include "mpi/backend/messages/starting.h"
#include "mpi/backend/state.h"
#include "mpi/services.h"

namespace headroom::mpi {
namespace {

/// A copy that the library sends.
int start_replacing_library_send(DirectRequest& request, const Arguments& what) {
  const Passing passing(what.peer, what.comm, what.count, what.datatype);
  int size = 0;
  if (what.count > 0) {  // of no elements the datatype may be none
    const InsideLibrary inside;
    real.Type_size[1](what.datatype, &size);
  }
  const uint64_t bytes = what.peer == MPI_PROC_NULL ? 0 : static_cast<uint64_t>(what.count) * static_cast<uint64_t>(size);
  if (bytes > 0 && !pack_by_library(request, what.buffer, what.count, what.datatype, bytes)) {
    return raise_error(what.comm, MPI_ERR_TYPE);
  }
  const int error = start_library_part(request, what.comm, [&](MPI_Request* handle) {
    return real.Isend[1](request.bounce, static_cast<int>(bytes), MPI_PACKED, what.peer, what.tag, what.comm, handle);
  });
  return passing.ended(error);
}

int start_library_receive(DirectRequest& request, const Arguments& what) {
  return start_library_part(request, what.comm, [&](MPI_Request* handle) { return receive_by_library(what, handle); });
}

int start_library_send(DirectRequest& request, const Arguments& what) {
  const Passing passing(what.peer, what.comm, what.count, what.datatype);
  const int error = start_library_part(request, what.comm, [&](MPI_Request* handle) {
    return what.count <= INT32_MAX
               ? real.Isend[1](what.buffer, static_cast<int>(what.count), what.datatype, what.peer, what.tag, what.comm, handle)
               : real.Isend_c[1](what.buffer, what.count, what.datatype, what.peer, what.tag, what.comm, handle);
  });
  return passing.ended(error);
}

// One request for both parts: the receive's, which has the send as its second part.

int start_both(const Route& from, const Route& to, const Arguments& in, const Arguments& out, bool replaces,
               MPI_Request* handle) {
  DirectRequest* const sending = take_request(in.comm);
  DirectRequest* const receiving = sending != nullptr ? take_request(in.comm) : nullptr;
  if (receiving == nullptr) {
    if (sending != nullptr) {
      recycle(sending);
    }
    return raise_error(in.comm, MPI_ERR_NO_MEM);
  }
  const int error = start_parts(*receiving, *sending, from, to, in, out, replaces);
  if (error != MPI_SUCCESS) {
    recycle(sending);
    recycle(receiving);
    return error;
  }
  receiving->also = sending;
  *handle = receiving->handle;
  return error;
}

}  // namespace

int start_parts(DirectRequest& receive, DirectRequest& send, const Route& from, const Route& to, const Arguments& in,
                const Arguments& out, bool replaces) {
  const auto start_receiving = [&] {
    return from.communicator != nullptr ? start_receive(receive, from, in) : start_library_receive(receive, in);
  };
  const auto start_sending = [&] {
    return to.communicator != nullptr ? start_send(send, to, out) : start_library_send(send, out);
  };
  if (!replaces) {
    // First the part that the library judges: if that is wrong nothing of ours may have received, or sent, anything.
    const bool sends_first = to.communicator == nullptr;
    int error = sends_first ? start_sending() : start_receiving();
    if (error == MPI_SUCCESS) {
      error = sends_first ? start_receiving() : start_sending();
      if (error != MPI_SUCCESS) {
        abandon(sends_first ? send : receive);
      }
    }
    return error;
  }
  int error = from.communicator != nullptr ? MPI_SUCCESS : judge_receive(in);
  if (error != MPI_SUCCESS) {
    return error;
  }
  error = to.communicator != nullptr ? start_send_of_copy(send, to, out) : start_replacing_library_send(send, out);
  if (error != MPI_SUCCESS) {
    drop_bounce(send);
    drop_copy(send);
    return error;
  }
  const int receive_error = start_receiving();
  if (receive_error != MPI_SUCCESS) {
    abandon(send);
  }
  return receive_error;
}

#define HEADROOM_REPLACE(Name, Count)                                                                             \
  int serve_##Name(void* buf, Count count, MPI_Datatype datatype, int dest, int sendtag, int source, int recvtag, \
                   MPI_Comm comm, MPI_Status* status, Entry entry) {                                              \
    if (direct_on) {                                                                                              \
      const Route to = route_of_send(buf, count, datatype, dest, sendtag, comm);                                  \
      const Route from = route_of_receive(buf, count, datatype, source, recvtag, comm);                           \
      if (to.communicator != nullptr || from.communicator != nullptr) {                                           \
        return send_and_receive(from, to, {buf, count, datatype, source, recvtag, comm, SendMode::kStandard},     \
                                {buf, count, datatype, dest, sendtag, comm, SendMode::kStandard}, true, status);  \
      }                                                                                                           \
    }                                                                                                             \
    const Passing passing(dest, comm, count, datatype);                                                           \
    const InsideLibrary inside;                                                                                   \
    const WithoutSlot waiting;                                                                                    \
    const int error = real.Name[entry](buf, count, datatype, dest, sendtag, source, recvtag, comm, status);       \
    return passing.ended(error);                                                                                  \
  }

HEADROOM_REPLACE(Sendrecv_replace, int)
HEADROOM_REPLACE(Sendrecv_replace_c, MPI_Count)

#define HEADROOM_START_BOTH(Name, Count)                                                                                      \
  int serve_##Name(const void* sendbuf, Count sendcount, MPI_Datatype sendtype, int dest, int sendtag, void* recvbuf,         \
                   Count recvcount, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm, MPI_Request* request,      \
                   Entry entry) {                                                                                             \
    if (direct_on) {                                                                                                          \
      const Route to = route_of_send(sendbuf, sendcount, sendtype, dest, sendtag, comm);                                      \
      const Route from = route_of_receive(recvbuf, recvcount, recvtype, source, recvtag, comm);                               \
      if (from.communicator != nullptr || to.communicator != nullptr) {                                                       \
        return start_both(from, to, {recvbuf, recvcount, recvtype, source, recvtag, comm, SendMode::kStandard},               \
                          {const_cast<void*>(sendbuf), sendcount, sendtype, dest, sendtag, comm, SendMode::kStandard}, false, \
                          request);                                                                                           \
      }                                                                                                                       \
    }                                                                                                                         \
    const Passing passing(dest, comm, sendcount, sendtype);                                                                   \
    const InsideLibrary inside;                                                                                               \
    const int error = real.Name[entry](sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype, source,     \
                                       recvtag, comm, request);                                                               \
    return passing.ended(error);                                                                                              \
  }

HEADROOM_START_BOTH(Isendrecv, int)
HEADROOM_START_BOTH(Isendrecv_c, MPI_Count)

#define HEADROOM_START_REPLACE(Name, Count)                                                                       \
  int serve_##Name(void* buf, Count count, MPI_Datatype datatype, int dest, int sendtag, int source, int recvtag, \
                   MPI_Comm comm, MPI_Request* request, Entry entry) {                                            \
    if (direct_on) {                                                                                              \
      const Route to = route_of_send(buf, count, datatype, dest, sendtag, comm);                                  \
      const Route from = route_of_receive(buf, count, datatype, source, recvtag, comm);                           \
      if (from.communicator != nullptr || to.communicator != nullptr) {                                           \
        return start_both(from, to, {buf, count, datatype, source, recvtag, comm, SendMode::kStandard},           \
                          {buf, count, datatype, dest, sendtag, comm, SendMode::kStandard}, true, request);       \
      }                                                                                                           \
    }                                                                                                             \
    const Passing passing(dest, comm, count, datatype);                                                           \
    const InsideLibrary inside;                                                                                   \
    const int error = real.Name[entry](buf, count, datatype, dest, sendtag, source, recvtag, comm, request);      \
    return passing.ended(error);                                                                                  \
  }

HEADROOM_START_REPLACE(Isendrecv_replace, int)
HEADROOM_START_REPLACE(Isendrecv_replace_c, MPI_Count)

}  // namespace headroom::mpi
