// See neighborhoods.h.
#include "mpi/backend/collectives/neighborhoods.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "base/system_calls.h"
#include "mpi/backend/collectives/barriers.h"
#include "mpi/backend/collectives/exchange.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/memory.h"
#include "mpi/backend/objects/communicators.h"

namespace headroom::mpi {
namespace {

bool are_distinct(const int* ranks, int count) {
  for (int index = 0; index < count; ++index) {
    for (int before = 0; before < index; ++before) {
      if (ranks[index] == ranks[before] && ranks[index] != MPI_PROC_NULL) {
        return false;
      }
    }
  }
  return true;
}

Neighborhood* make_neighborhood(int sources, int destinations) {
  const size_t ranks = static_cast<size_t>(sources) + static_cast<size_t>(destinations);
  auto* made = static_cast<Neighborhood*>(memory_or_abort(sizeof(Neighborhood) + ranks * sizeof(int)));
  made->sources = sources;
  made->destinations = destinations;
  made->source = reinterpret_cast<int*>(made + 1);
  made->destination = made->source + sources;
  return made;
}

Neighborhood* neighborhood_of_grid(MPI_Comm comm) {
  int dimensions = 0;
  real.Cartdim_get[1](comm, &dimensions);
  Neighborhood* made = make_neighborhood(2 * dimensions, 2 * dimensions);
  auto* extents = static_cast<int*>(memory_or_abort(3 * sizeof(int) * (static_cast<size_t>(dimensions) + 1)));
  int* const periodic = extents + dimensions;
  real.Cart_get[1](comm, dimensions, extents, periodic, periodic + dimensions);
  made->distinct = true;
  for (int dimension = 0; dimension < dimensions; ++dimension) {
    real.Cart_shift[1](comm, dimension, 1, &made->source[2 * dimension], &made->source[2 * dimension + 1]);
    made->distinct = made->distinct && (periodic[dimension] == 0 || extents[dimension] > 2);
  }
  memcpy(made->destination, made->source, sizeof(int) * 2 * static_cast<size_t>(dimensions));
  free(extents);
  return made;
}

/// All ranks know all of the graph.
Neighborhood* neighborhood_of_graph(MPI_Comm comm, const Communicator& communicator) {
  const auto neighborhood_of = [comm](int rank) {
    int count = 0;
    real.Graph_neighbors_count[1](comm, rank, &count);
    Neighborhood* const found = make_neighborhood(count, count);
    real.Graph_neighbors[1](comm, rank, count, found->source);
    return found;
  };
  Neighborhood* const made = neighborhood_of(communicator.rank);
  bool distinct = are_distinct(made->source, made->sources);
  for (int rank = 0; rank < communicator.size && distinct; ++rank) {
    Neighborhood* const other = neighborhood_of(rank);
    distinct = are_distinct(other->source, other->sources);
    free(other);
  }
  memcpy(made->destination, made->source, sizeof(int) * static_cast<size_t>(made->sources));
  made->distinct = distinct;
  return made;
}

/// Each rank knows its own edges only; the ranks agree on all of them when the communicator is made (agree_on_neighborhood()).
Neighborhood* neighborhood_of_edges(MPI_Comm comm) {
  int sources = 0;
  int destinations = 0;
  int weighted = 0;
  real.Dist_graph_neighbors_count[1](comm, &sources, &destinations, &weighted);
  Neighborhood* made = make_neighborhood(sources, destinations);
  auto* weights =
      static_cast<int*>(memory_or_abort(sizeof(int) * (static_cast<size_t>(sources) + static_cast<size_t>(destinations) + 1)));
  real.Dist_graph_neighbors[1](comm, sources, made->source, weights, destinations, made->destination, weights + sources);
  free(weights);
  made->distinct = are_distinct(made->source, sources) && are_distinct(made->destination, destinations);
  return made;
}

/// Whether `mine` holds on all ranks. All of them ask.
bool holds_everywhere(Communicator& communicator, bool mine) {
  Waits ending;
  Exchange& exchange = ending.begin(communicator, 0, 0);
  auto* answers = static_cast<char*>(memory_or_abort(static_cast<size_t>(communicator.size)));
  char everywhere = mine ? 1 : 0;
  if (communicator.rank != 0) {
    exchange.send(0, {&everywhere, 1, nullptr});
    exchange.wait_for_sends();
  }
  for (int peer = 1; communicator.rank == 0 && peer < communicator.size; ++peer) {
    exchange.receive(peer, {&answers[peer], 1, nullptr});
  }
  exchange.wait_for_receives();
  for (int peer = 1; communicator.rank == 0 && peer < communicator.size; ++peer) {
    everywhere = static_cast<char>(everywhere & answers[peer]);
  }
  free(answers);
  broadcast(ending, exchange, communicator, {&everywhere, 1, nullptr}, 0);
  exchange.wait();
  return everywhere != 0;
}

}  // namespace

void agree_on_neighborhood(MPI_Comm comm) {
  int topology = MPI_UNDEFINED;
  Communicator* communicator = communicator_of(comm);
  real.Topo_test[1](comm, &topology);
  if (communicator->direct && topology == MPI_DIST_GRAPH) {
    communicator->neighborhood = neighborhood_of_edges(comm);
    communicator->neighborhood->distinct = holds_everywhere(*communicator, communicator->neighborhood->distinct);
  }
}

Communicator* neighborhood_on(MPI_Comm comm) {
  Communicator* communicator = communicator_of(comm);
  if (!communicator->direct) {
    return nullptr;
  }
  if (communicator->neighborhood == nullptr) {
    const InsideLibrary inside;
    const base::LockHolder lock(look_up_lock);
    int topology = MPI_UNDEFINED;
    real.Topo_test[1](comm, &topology);
    communicator->neighborhood = topology == MPI_CART    ? neighborhood_of_grid(comm)
                                 : topology == MPI_GRAPH ? neighborhood_of_graph(comm, *communicator)
                                                         : make_neighborhood(0, 0);  // not distinct: it is the library's
  }
  return communicator->neighborhood->distinct ? communicator : nullptr;
}

}  // namespace headroom::mpi
