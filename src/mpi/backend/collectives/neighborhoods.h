// Neighbourhood collectives among ranks of one node: see collectives.h.
//
// The library says which neighbours a rank has. Where two edges join the same two ranks (a periodic dimension of two, say), the
// library also decides which message belongs to which edge; so there all ranks leave these calls to it.
#pragma once

#include "mpi/backend/abi.h"
#include "mpi/backend/collectives/collective_moves.h"
#include "mpi/backend/collectives/collectives.h"
#include "mpi/backend/collectives/exchange.h"
#include "mpi/backend/collectives/numbers.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/objects/datatypes.h"

namespace headroom::mpi {

struct Neighborhood {
  bool distinct;  // no two edges between the same two ranks, anywhere in the communicator
  int sources;
  int destinations;
  int* source;  // ranks, MPI_PROC_NULL at the ends of a grid
  int* destination;
};

/// After a constructor that all members have called: they agree on what none of them knows alone.
void agree_on_neighborhood(MPI_Comm comm);

/// The communicator, if its neighbourhood collectives are made here.
Communicator* neighborhood_on(MPI_Comm comm);

/// `sent(operands, index)` goes to the neighbour with that number, `received(operands, index)` comes from it.
template <typename Ending, typename Sent, typename Received>
int exchange_with_neighbors(Ending& ending, Communicator& communicator, MPI_Comm comm, Sent sent, Received received) {
  const Neighborhood& neighbors = *communicator.neighborhood;
  Exchange& exchange = ending.begin(communicator, neighbors.destinations, neighbors.sources);
  for (int index = 0; index < neighbors.destinations; ++index) {
    if (neighbors.destination[index] != MPI_PROC_NULL) {
      exchange.send(neighbors.destination[index], sent(ending.operands(), index));
    }
  }
  for (int index = 0; index < neighbors.sources; ++index) {
    if (neighbors.source[index] != MPI_PROC_NULL) {
      ending.receive(neighbors.source[index], received(ending.operands(), index));
    }
  }
  return ending.end(comm);
}

template <typename Ending>
bool gather_from_neighbors(Ending& ending, const OnePart& mine, Parts all, MPI_Comm comm, int& error) {
  Communicator* communicator = neighborhood_on(comm);
  if (communicator == nullptr) {
    return false;
  }
  // The arguments of a rank without neighbours on one side mean nothing there; the others must not wait for it because of them.
  const int sources = communicator->neighborhood->sources;
  const bool sends = communicator->neighborhood->destinations > 0;
  const Datatype* own = sends ? operand_type(mine.buffer, mine.count, mine.datatype) : nullptr;
  if ((sends && own == nullptr) || (sources > 0 && !all.look_at_datatypes(sources))) {
    return false;
  }
  error = exchange_with_neighbors(
      ending, *communicator, comm,
      [&](Operands& operands, int) { return operands.sent(mine.buffer, mine.count, mine.datatype, *own); },
      [&](Operands& operands, int index) { return all.received(operands, index); });
  return true;
}

template <typename Ending, typename SentParts, typename ReceivedParts>
int exchange_parts_with_neighbors(Ending& ending, Communicator& communicator, MPI_Comm comm, const SentParts& from,
                                  const ReceivedParts& into) {
  return exchange_with_neighbors(
      ending, communicator, comm, [&](Operands& operands, int index) { return from.sent(operands, index); },
      [&](Operands& operands, int index) { return into.received(operands, index); });
}

template <typename Ending>
bool exchange_alike_with_neighbors(Ending& ending, Parts from, Parts into, MPI_Comm comm, int& error) {
  Communicator* communicator = neighborhood_on(comm);
  if (communicator == nullptr) {
    return false;
  }
  const int sources = communicator->neighborhood->sources;
  const int destinations = communicator->neighborhood->destinations;
  if ((destinations > 0 && !from.look_at_datatypes(destinations)) || (sources > 0 && !into.look_at_datatypes(sources))) {
    return false;
  }
  error = exchange_parts_with_neighbors(ending, *communicator, comm, from, into);
  return true;
}

template <typename Ending>
bool direct_Neighbor_allgather(Ending&& ending, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                               MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, int& error) {
  return gather_from_neighbors(ending, {sendbuf, sendcount, sendtype}, {recvbuf, &recvcount, nullptr, recvtype, nullptr, true},
                               comm, error);
}

template <typename Ending>
bool direct_Neighbor_allgatherv(Ending&& ending, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                                Numbers recvcounts, Numbers displs, MPI_Datatype recvtype, MPI_Comm comm, int& error) {
  return gather_from_neighbors(ending, {sendbuf, sendcount, sendtype}, {recvbuf, recvcounts, displs, recvtype, nullptr}, comm,
                               error);
}

template <typename Ending>
bool direct_Neighbor_alltoall(Ending&& ending, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                              MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, int& error) {
  return exchange_alike_with_neighbors(ending, {sendbuf, &sendcount, nullptr, sendtype, nullptr, true},
                                       {recvbuf, &recvcount, nullptr, recvtype, nullptr, true}, comm, error);
}

template <typename Ending>
bool direct_Neighbor_alltoallv(Ending&& ending, const void* sendbuf, Numbers sendcounts, Numbers sdispls, MPI_Datatype sendtype,
                               void* recvbuf, Numbers recvcounts, Numbers rdispls, MPI_Datatype recvtype, MPI_Comm comm,
                               int& error) {
  return exchange_alike_with_neighbors(ending, {sendbuf, sendcounts, sdispls, sendtype, nullptr},
                                       {recvbuf, recvcounts, rdispls, recvtype, nullptr}, comm, error);
}

template <typename Ending>
bool direct_Neighbor_alltoallw(Ending&& ending, const void* sendbuf, Numbers sendcounts, const MPI_Aint* sdispls,
                               const MPI_Datatype* sendtypes, void* recvbuf, Numbers recvcounts, const MPI_Aint* rdispls,
                               const MPI_Datatype* recvtypes, MPI_Comm comm, int& error) {
  Communicator* communicator = neighborhood_on(comm);
  if (communicator == nullptr) {
    return false;
  }
  const TypedParts from = {sendbuf, sendcounts, sdispls, sendtypes};
  const TypedParts into = {recvbuf, recvcounts, rdispls, recvtypes};
  if (!from.look_at_datatypes(communicator->neighborhood->destinations) ||
      !into.look_at_datatypes(communicator->neighborhood->sources)) {
    return false;
  }
  error = exchange_parts_with_neighbors(ending, *communicator, comm, from, into);
  return true;
}

}  // namespace headroom::mpi
