// See exchange.h.
#include "mpi/backend/collectives/exchange.h"

#include <cstddef>
#include <new>

#include "direct/endpoint.h"
#include "mpi/backend/memory.h"
#include "mpi/backend/objects/communicators.h"

namespace headroom::mpi {

CollectivePlaces* make_places(int sends, int receives) {
  const auto send_bytes = static_cast<size_t>(sends) * sizeof(direct::Sending*);
  auto* memory = static_cast<char*>(
      memory_or_abort(sizeof(CollectivePlaces) + send_bytes + static_cast<size_t>(receives) * sizeof(direct::Receiving)));
  auto* places = reinterpret_cast<CollectivePlaces*>(memory);
  places->most_sends = sends;
  places->sendings = reinterpret_cast<direct::Sending**>(memory + sizeof(CollectivePlaces));
  places->receivings = reinterpret_cast<direct::Receiving*>(memory + sizeof(CollectivePlaces) + send_bytes);
  for (int index = 0; index < receives; ++index) {
    new (&places->receivings[index]) direct::Receiving;
  }
  return places;
}

CollectivePlaces& places_of(Communicator& communicator) {
  if (communicator.places == nullptr) {
    communicator.places = make_places(2 * communicator.size, communicator.size);
  }
  return *communicator.places;
}

}  // namespace headroom::mpi
