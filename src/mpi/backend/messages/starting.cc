// See starting.h.
#include "mpi/backend/messages/starting.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/messages/direct_requests.h"
#include "mpi/backend/messages/ending.h"
#include "mpi/backend/messages/library_parts.h"
#include "mpi/backend/messages/request_contents.h"
#include "mpi/backend/messages/routes.h"
#include "mpi/backend/objects/datatypes.h"

namespace headroom::mpi {
namespace {

/// Longer buffered sends are copied to memory that may leave, not to message memory: a program may have buffered more than
/// there is room for. Content up to this size is always copied aside, however short memory is.
constexpr uint64_t kBufferedApart = direct::kSmallRingBytes;

/// A rank that never has to wait looks after them here, as often as they have doubled.
void look_after_many_freed_requests() {
  constexpr uint32_t kFew = 8;
  if (freed_count.load(std::memory_order_relaxed) >= kFew + 2 * freed_and_looked_at.load(std::memory_order_relaxed)) {
    make_progress();
  }
}

/// A buffered send of long content, complete at once: nobody waits for its copy.
int start_buffered_send(const Route& route, const Arguments& what) {
  look_after_many_freed_requests();
  DirectRequest* request = take_request(what.comm);
  if (request == nullptr) {
    return raise_error(what.comm, MPI_ERR_NO_MEM);
  }
  const int error = start_send_of_copy(*request, route, what);
  if (request->copied == nullptr) {
    recycle(request);
  } else {
    leave_request(request);
  }
  return error;
}

}  // namespace

void forget_start(DirectRequest& request) {
  drop_bounce(request);
  request.active = false;
}

int start_send(DirectRequest& request, const Route& route, const Arguments& what) {
  request.kind = RequestKind::kSend;
  request.active = true;
  request.cancelled = false;
  request.comm = what.comm;
  request.sending = nullptr;
  const uint64_t bytes = static_cast<uint64_t>(what.count) * route.datatype->bytes;
  if (what.mode == SendMode::kBuffered && bytes > kBufferedApart) {
    return start_buffered_send(route, what);
  }
  direct::Content content = {static_cast<char*>(what.buffer), bytes, route.datatype->layout};
  if (!route.datatype->usable) {
    if (!pack_by_library(request, what.buffer, what.count, what.datatype, bytes)) {
      forget_start(request);
      return raise_error(what.comm, MPI_ERR_TYPE);
    }
    content.address = request.bounce;
  }
  const direct::Envelope envelope = {route.communicator->context, route.communicator->rank, what.tag};
  const direct::SendOutcome outcome =
      core->endpoint.send(route.communicator->members[what.peer], envelope, content, kind_of(what.mode), 0, request.sending);
  if (outcome == direct::SendOutcome::kPending && what.mode == SendMode::kBuffered) {
    core->endpoint.copy_aside(request.sending, true);
  }
  if (outcome != direct::SendOutcome::kPending) {
    request.sending = nullptr;
    drop_bounce(request);
  }
  if (outcome == direct::SendOutcome::kNoMemory) {
    forget_start(request);
    return raise_error(what.comm, MPI_ERR_NO_MEM);
  }
  return MPI_SUCCESS;
}

void leave_request(DirectRequest* request) {
  const LockAmongThreads lock(request_lock);
  request->freed = true;
  request->next = freed_requests;
  freed_requests = request;
  ++freed_count;
}

void drop_copy(DirectRequest& request) {
  free(request.copied);
  request.copied = nullptr;
}

int start_send_of_copy(DirectRequest& request, const Route& route, const Arguments& what) {
  const uint64_t bytes = static_cast<uint64_t>(what.count) * route.datatype->bytes;
  request.copied = static_cast<char*>(malloc(bytes + 1));
  if (request.copied == nullptr) {
    return raise_error(what.comm, MPI_ERR_NO_MEM);
  }
  if (route.datatype->usable) {
    core->endpoint.copy_content({request.copied, bytes, nullptr},
                                {static_cast<char*>(what.buffer), bytes, route.datatype->layout});
  } else if (pack_by_library(request, what.buffer, what.count, what.datatype, bytes)) {
    memcpy(request.copied, request.bounce, bytes);
    drop_bounce(request);
  } else {
    drop_bounce(request);
    drop_copy(request);
    return raise_error(what.comm, MPI_ERR_TYPE);
  }
  static Datatype of_bytes = {.handle = {}, .bytes = 1, .extent = 1, .layout = nullptr, .usable = true, .element = {}};
  return start_send(
      request, {route.communicator, &of_bytes},
      {request.copied, static_cast<MPI_Count>(bytes), MPI_BYTE, what.peer, what.tag, what.comm, SendMode::kStandard});
}

int prepare_receive(DirectRequest& request, Datatype& datatype, const Arguments& what) {
  request.kind = RequestKind::kReceive;
  request.active = true;
  request.cancelled = false;
  request.comm = what.comm;
  direct::Receiving& receiving = request.receiving;
  receiving.complete.store(false, std::memory_order_relaxed);
  receiving.cancelled = false;
  receiving.record = nullptr;
  receiving.claim_message = nullptr;
  receiving.may_be_left = true;
  receiving.withdrawn = false;
  request.in_library = false;
  request.from_library = false;
  request.has_token = false;
  receiving.into = {static_cast<char*>(what.buffer), static_cast<uint64_t>(what.count) * datatype.bytes, datatype.layout};
  if (!datatype.usable) {
    request.arguments = what;
    if (!make_bounce_to_unpack(request, receiving.into.bytes, what.datatype)) {
      forget_start(request);
      return raise_error(what.comm, MPI_ERR_NO_MEM);
    }
    receiving.into.address = request.bounce;
  }
  request.layout = datatype.layout;
  direct::keep(request.layout);
  return MPI_SUCCESS;
}

int start_receive(DirectRequest& request, const Route& route, const Arguments& what) {
  if (what.peer == MPI_ANY_SOURCE && route.communicator->spans) {
    return start_receive_from_anywhere(request, route, what);
  }
  const int error = prepare_receive(request, *route.datatype, what);
  if (error == MPI_SUCCESS) {
    request.receiving.envelope = envelope_of(*route.communicator, what.peer, what.tag);
    request.receiving.member = what.peer >= 0                ? route.communicator->members[what.peer]
                               : route.communicator->between ? direct::kAnyMember
                                                             : -1;
    core->endpoint.receive(request.receiving);
  }
  return error;
}

}  // namespace headroom::mpi
