// Point-to-point calls.
//
// A call on a communicator whose messages are direct is served here. Any other is the library's, where that is good enough: in
// the mode pass, and in yield with a progress hook. Otherwise it is the nonblocking form, polled: one rank alone may choose how
// its send or receive blocks, unlike a collective's form. Where node-mates may need this rank meanwhile, waiting for the
// library is polled, too.
#pragma once

#include <cstdint>

#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/messages/ending.h"
#include "mpi/backend/messages/routes.h"
#include "mpi/backend/messages/waiting.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/state.h"

namespace headroom::mpi {

struct Arguments;

/// A call of which one part at least is direct.
int send_and_receive(const Route& from, const Route& to, const Arguments& in, const Arguments& out, bool replaces,
                     MPI_Status* status);

/// Status of a message that is there but not received.
void set_probed(MPI_Status* status, const direct::Envelope& envelope, uint64_t bytes);

/// Where a probe looks: in the layer if there is a communicator, in the library if so.
struct Probed {
  Communicator* communicator;
  bool in_library;
};

/// Arguments that MPI forbids are the library's.
inline Probed ways_to_probe(int source, int tag, MPI_Comm comm) {
  const bool possible = direct_on && (tag >= 0 || tag == MPI_ANY_TAG) && (source >= 0 || source == MPI_ANY_SOURCE);
  Communicator* communicator = possible ? communicator_of(comm) : nullptr;
  if (communicator == nullptr || !(communicator->direct || communicator->spans || communicator->between) ||
      source >= communicator->size || tag > highest_tag || (source >= 0 && !is_ours(*communicator, source))) {
    return {nullptr, true};
  }
  return {communicator, communicator->spans && source == MPI_ANY_SOURCE};
}

/// Waits until `here`, or `there` in the library, has found something.
template <typename Here, typename There>
int wait_on_both_ways(const Probed& probed, Here here, There there) {
  int error = MPI_SUCCESS;
  wait_direct([&] {
    int found = here() ? 1 : 0;
    if (found == 0 && probed.in_library) {
      const InsideLibrary inside;
      error = there(&found);
      waits_for_library = true;
    }
    return found != 0 || error != MPI_SUCCESS;
  });
  share_success();
  return error;
}

}  // namespace headroom::mpi
