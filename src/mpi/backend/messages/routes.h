// Whether a call about messages is direct.
//
// A Route says what the arguments mean in the layer, or that the call is the library's: since the other side is on another node
// or the communicator cannot have direct messages, or since the library refuses the arguments, so that it says which error that
// is. Arguments that the other side does not know (count, datatype, buffer) decide whether there is an error, and never about
// the way: else one side would wait where the other does not send. A message that is left to the library is counted with the
// reason (Passing).
#pragma once

#include <cstdint>

#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/messages/direct_requests.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/objects/datatypes.h"
#include "mpi/backend/state.h"
#include "mpi/trampolines.h"

namespace headroom::mpi {

/// The meaning of a call about messages in the layer; `communicator` is nullptr where the call is the library's.
struct Route {
  Communicator* communicator;
  Datatype* datatype;
};

/// A call with arguments that MPI forbids goes to the library, which says so.
[[gnu::always_inline]] inline Route route_of(const void* buffer, MPI_Count count, MPI_Datatype datatype, int tag,
                                             MPI_Comm comm) {
  Communicator* communicator = communicator_of(comm);
  if (!(communicator->direct || communicator->spans || communicator->between) || count < 0 || tag > highest_tag) {
    return {nullptr, nullptr};
  }
  Datatype* known = datatype_of_message(buffer, count, datatype);
  if (known == nullptr || (buffer == nullptr && known->usable && known->layout == nullptr && known->bytes > 0 && count > 0)) {
    return {nullptr, nullptr};
  }
  return {communicator, known};
}

/// Whether messages with that rank are matched here.
inline bool is_ours(const Communicator& communicator, int rank) {
  return communicator.members[rank] >= 0 || communicator.between;
}

/// The way of a send: `communicator` is nullptr where it is the library's.
[[gnu::always_inline]] inline Route route_of_send(const void* buffer, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
                                                  MPI_Comm comm) {
  const Route route = tag >= 0 && dest >= 0 ? route_of(buffer, count, datatype, tag, comm) : Route{nullptr, nullptr};
  const bool ours = route.communicator != nullptr && dest < route.communicator->size && is_ours(*route.communicator, dest);
  return ours ? route : Route{nullptr, nullptr};
}

/// The same of a receive.
[[gnu::always_inline]] inline Route route_of_receive(const void* buffer, MPI_Count count, MPI_Datatype datatype, int source,
                                                     int tag, MPI_Comm comm) {
  const bool possible = (tag >= 0 || tag == MPI_ANY_TAG) && (source >= 0 || source == MPI_ANY_SOURCE);
  const Route route = possible ? route_of(buffer, count, datatype, tag, comm) : Route{nullptr, nullptr};
  const bool ours = route.communicator != nullptr && source < route.communicator->size &&
                    (source == MPI_ANY_SOURCE || is_ours(*route.communicator, source));
  return ours ? route : Route{nullptr, nullptr};
}

/// A message that is left to the library. The reason is found before the call: objects that the call names may be gone
/// afterwards.
class Passing {
 public:
  Passing(int dest, MPI_Comm comm, MPI_Count count, MPI_Datatype datatype)
      : counts_(direct_on && dest != MPI_PROC_NULL), count_(count), datatype_(datatype) {
    if (!counts_) {
      return;
    }
    const Communicator* communicator = communicator_of(comm);
    const bool known = communicator != &left_to_library;
    const bool elsewhere =
        known && !communicator->between && dest >= 0 && dest < communicator->size && communicator->members[dest] < 0;
    why_ = elsewhere ? PassedFor::kOtherNode : known ? PassedFor::kArguments : PassedFor::kCommunicator;
    const Datatype* cached = cached_datatype(datatype);
    size_ = count <= 0 ? 0 : cached != nullptr ? static_cast<MPI_Count>(cached->bytes) : -1;  // of no elements it may be none
  }

  /// Counts it, with its content if the library has accepted it. Returns what the library said.
  [[nodiscard]] int ended(int error) const {
    if (counts_) {
      MPI_Count size = error == MPI_SUCCESS ? size_ : 0;
      if (size < 0) {
        const InsideLibrary inside;
        real.Type_size_x[1](datatype_, &size);
      }
      core->count_passed(why_, size > 0 ? static_cast<uint64_t>(count_) * static_cast<uint64_t>(size) : 0);
    }
    return error;
  }

 private:
  bool counts_;
  PassedFor why_ = PassedFor::kArguments;
  MPI_Count count_;
  MPI_Datatype datatype_;
  MPI_Count size_ = -1;
};

/// MPI's words in the layer's.
inline direct::Envelope envelope_of(const Communicator& communicator, int source, int tag) {
  return {communicator.context, source == MPI_ANY_SOURCE ? direct::kAny : source, tag == MPI_ANY_TAG ? direct::kAny : tag};
}

inline direct::SendKind kind_of(SendMode mode) {
  return mode == SendMode::kSynchronous ? direct::SendKind::kSynchronous
         : mode == SendMode::kBuffered  ? direct::SendKind::kBuffered
                                        : direct::SendKind::kStandard;
}

}  // namespace headroom::mpi
