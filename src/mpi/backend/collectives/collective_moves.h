// Gather, scatter, allgather and alltoall in all their forms: see collectives.h.
//
// Each rank's part goes straight from where it lies to where it is wanted. The forms with one count and those with counts for
// each rank differ in where the parts are, and in nothing else.
#pragma once

#include <cstdint>

#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/collectives/collectives.h"
#include "mpi/backend/collectives/exchange.h"
#include "mpi/backend/collectives/numbers.h"
#include "mpi/backend/messages/direct_requests.h"
#include "mpi/backend/messages/request_contents.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/objects/datatypes.h"

namespace headroom::mpi {

/// Where the parts of a buffer that has one for each rank are: all alike, or as counts and displacements say.
struct Parts {
  const void* buffer;
  Numbers counts;
  Numbers displacements;
  MPI_Datatype datatype;
  const Datatype* known;
  bool alike = false;  // all have counts[0], one after the other

  [[nodiscard]] MPI_Count count(int rank) const { return counts[alike ? 0 : rank]; }
  [[nodiscard]] char* address(int rank) const {
    return element(buffer, alike ? static_cast<int64_t>(counts[0]) * rank : displacements[rank], *known);
  }
  [[nodiscard]] direct::Content sent(Operands& operands, int rank) const {
    return count(rank) == 0 ? direct::Content{nullptr, 0, nullptr}
                            : operands.sent(address(rank), count(rank), datatype, *known);
  }
  [[nodiscard]] direct::Content received(Operands& operands, int rank) const {
    return count(rank) == 0 ? direct::Content{nullptr, 0, nullptr}
                            : operands.received(address(rank), count(rank), datatype, *known);
  }
  /// Finds out about the datatype; false where MPI forbids the arguments. If no part has elements it may be any (operand_type).
  [[nodiscard]] bool look_at_datatypes(int size) {
    MPI_Count most = 0;
    for (int rank = 0; rank < (alike ? 1 : size); ++rank) {
      if (counts[rank] < 0) {
        return false;
      }
      most = counts[rank] > most ? static_cast<MPI_Count>(counts[rank]) : most;
    }
    known = operand_type(this, most, datatype);  // parts may lie anywhere
    return known != nullptr;
  }
};

/// One part, for which a call names a buffer of its own.
struct OnePart {
  const void* buffer;
  MPI_Count count;
  MPI_Datatype datatype;
};

template <typename Ending>
bool gather_directly(Ending& ending, const OnePart& mine, Parts all, int root, MPI_Comm comm, int& error) {
  Communicator* communicator = collective_on(comm);
  if (communicator == nullptr || root < 0 || root >= communicator->size) {
    return false;
  }
  const bool is_root = communicator->rank == root;
  const bool in_place = is_root && mine.buffer == MPI_IN_PLACE;
  const Datatype* sent = in_place ? nullptr : operand_type(mine.buffer, mine.count, mine.datatype);
  if ((!in_place && sent == nullptr) || (is_root && !all.look_at_datatypes(communicator->size))) {
    return false;
  }
  Exchange& exchange = ending.begin(*communicator, communicator->size, communicator->size);
  Operands& operands = ending.operands();
  const direct::Content own =
      in_place ? direct::Content{nullptr, 0, nullptr} : operands.sent(mine.buffer, mine.count, mine.datatype, *sent);
  if (!is_root) {
    exchange.send(root, own, direct::SendKind::kRooted);
  }
  for (int rank = 0; is_root && rank < communicator->size; ++rank) {
    if (rank != root) {
      ending.receive(rank, all.received(operands, rank));
    } else if (!in_place) {
      core->endpoint.copy_content(all.received(operands, rank), own);
    }
  }
  error = ending.end_one_way(*communicator, comm, Ahead::kInQueues);
  return true;
}

template <typename Ending>
bool scatter_directly(Ending& ending, Parts all, const OnePart& mine, int root, MPI_Comm comm, int& error) {
  Communicator* communicator = collective_on(comm);
  if (communicator == nullptr || root < 0 || root >= communicator->size) {
    return false;
  }
  const bool is_root = communicator->rank == root;
  const bool in_place = is_root && mine.buffer == MPI_IN_PLACE;
  const Datatype* received = in_place ? nullptr : operand_type(mine.buffer, mine.count, mine.datatype);
  if ((!in_place && received == nullptr) || (is_root && !all.look_at_datatypes(communicator->size))) {
    return false;
  }
  Exchange& exchange = ending.begin(*communicator, communicator->size, communicator->size);
  Operands& operands = ending.operands();
  const direct::Content own = in_place
                                  ? direct::Content{nullptr, 0, nullptr}
                                  : operands.received(const_cast<void*>(mine.buffer), mine.count, mine.datatype, *received);
  if (!is_root) {
    ending.receive(root, own);
  }
  for (int step = 1; is_root && step < communicator->size; ++step) {
    const int rank = (root + step) % communicator->size;
    exchange.send(rank, all.sent(operands, rank), direct::SendKind::kRooted);
  }
  if (is_root && !in_place) {
    core->endpoint.copy_content(own, all.sent(operands, root));
  }
  error = ending.end_one_way(*communicator, comm, Ahead::kInChannels);
  return true;
}

template <typename Ending>
bool allgather_directly(Ending& ending, const OnePart& mine, Parts all, MPI_Comm comm, int& error) {
  Communicator* communicator = collective_on(comm);
  if (communicator == nullptr) {
    return false;
  }
  const int rank = communicator->rank;
  const int size = communicator->size;
  const bool in_place = mine.buffer == MPI_IN_PLACE;
  const Datatype* sent = in_place ? nullptr : operand_type(mine.buffer, mine.count, mine.datatype);
  if ((!in_place && sent == nullptr) || !all.look_at_datatypes(size)) {
    return false;
  }
  Exchange& exchange = ending.begin(*communicator, communicator->size, communicator->size);
  Operands& operands = ending.operands();
  const direct::Content own =
      in_place ? all.sent(operands, rank) : operands.sent(mine.buffer, mine.count, mine.datatype, *sent);
  for (int step = 1; step < size; ++step) {
    exchange.send((rank + step) % size, own);
  }
  if (!in_place) {
    core->endpoint.copy_content(all.received(operands, rank), own);
  }
  for (int step = 1; step < size; ++step) {
    const int peer = (rank - step + size) % size;
    ending.receive(peer, all.received(operands, peer));
  }
  error = ending.end(comm);
  return true;
}

/// Each part is copied before it is sent, one pair of ranks after the other: the part that comes is put where that one lay.
template <typename AllParts>
void exchange_in_place(Exchange& exchange, const Communicator& communicator, const AllParts& all, Operands& operands) {
  for (int step = 1; step < communicator.size; ++step) {
    const int to = (communicator.rank + step) % communicator.size;
    const int from = (communicator.rank - step + communicator.size) % communicator.size;
    // Both parts of a pair of ranks must leave before either is overwritten.
    DirectRequest copies[2];
    const int peers[2] = {to, from};
    const int count = to == from ? 1 : 2;
    if (step > communicator.size - step) {
      break;  // the other half of the steps is the same pairs
    }
    for (int index = 0; index < count; ++index) {
      const direct::Content part = all.sent(operands, peers[index]);
      if (make_bounce(copies[index], part.bytes) == nullptr) {
        exchange.note(MPI_ERR_NO_MEM);
        return;
      }
      core->endpoint.copy_content({copies[index].bounce, part.bytes, nullptr}, part);
      exchange.send(peers[index], {copies[index].bounce, part.bytes, nullptr});
    }
    for (int index = 0; index < count; ++index) {
      exchange.receive(peers[index], all.received(operands, peers[index]));
    }
    exchange.wait();
    drop_bounce(copies[0]);
    drop_bounce(copies[1]);
  }
}

template <typename Ending, typename SentParts, typename ReceivedParts>
int exchange_all(Ending& ending, Communicator& communicator, const SentParts& from, const ReceivedParts& into, bool in_place,
                 MPI_Comm comm) {
  const int rank = communicator.rank;
  const int size = communicator.size;
  Exchange& exchange = ending.begin(communicator, size, size);
  Operands& operands = ending.operands();
  if (in_place) {
    exchange_in_place(exchange, communicator, into, operands);
    return ending.end(comm);
  }
  for (int step = 1; step < size; ++step) {
    const int to = (rank + step) % size;
    exchange.send(to, from.sent(operands, to));
  }
  core->endpoint.copy_content(into.received(operands, rank), from.sent(operands, rank));
  for (int step = 1; step < size; ++step) {
    const int peer = (rank - step + size) % size;
    ending.receive(peer, into.received(operands, peer));
  }
  return ending.end(comm);
}

/// Whether the call can exchange so: in place it goes pair by pair, each waiting for the one before, so only a call that waits
/// can.
template <typename Ending>
bool can_exchange(bool in_place) {
  return Ending::kMayWait || !in_place;
}

template <typename Ending>
bool alltoall_directly(Ending& ending, Parts from, Parts into, MPI_Comm comm, int& error) {
  Communicator* communicator = collective_on(comm);
  if (communicator == nullptr) {
    return false;
  }
  const bool in_place = from.buffer == MPI_IN_PLACE;
  if (!can_exchange<Ending>(in_place) || !into.look_at_datatypes(communicator->size) ||
      (!in_place && !from.look_at_datatypes(communicator->size))) {
    return false;
  }
  error = exchange_all(ending, *communicator, from, into, in_place, comm);
  return true;
}

/// MPI_Alltoallw: a datatype for each rank, and displacements in bytes.
struct TypedParts {
  const void* buffer;
  Numbers counts;
  Numbers displacements;
  const MPI_Datatype* datatypes;

  [[nodiscard]] char* address(int rank) const { return static_cast<char*>(const_cast<void*>(buffer)) + displacements[rank]; }
  // A part without elements needs no datatype: programs pass MPI_DATATYPE_NULL there.
  [[nodiscard]] direct::Content sent(Operands& operands, int rank) const {
    return counts[rank] == 0 ? direct::Content{nullptr, 0, nullptr}
                             : operands.sent(address(rank), counts[rank], datatypes[rank], *datatype_of(datatypes[rank]));
  }
  [[nodiscard]] direct::Content received(Operands& operands, int rank) const {
    return counts[rank] == 0 ? direct::Content{nullptr, 0, nullptr}
                             : operands.received(address(rank), counts[rank], datatypes[rank], *datatype_of(datatypes[rank]));
  }
  [[nodiscard]] bool look_at_datatypes(int size) const {
    for (int rank = 0; rank < size; ++rank) {
      if (counts[rank] < 0 || (counts[rank] > 0 && datatype_of(datatypes[rank]) == nullptr)) {
        return false;
      }
    }
    return true;
  }
};

template <typename Ending>
bool direct_Gather(Ending&& ending, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                   MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, int& error) {
  return gather_directly(ending, {sendbuf, sendcount, sendtype}, {recvbuf, &recvcount, nullptr, recvtype, nullptr, true}, root,
                         comm, error);
}

template <typename Ending>
bool direct_Gatherv(Ending&& ending, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                    Numbers recvcounts, Numbers displs, MPI_Datatype recvtype, int root, MPI_Comm comm, int& error) {
  return gather_directly(ending, {sendbuf, sendcount, sendtype}, {recvbuf, recvcounts, displs, recvtype, nullptr}, root, comm,
                         error);
}

template <typename Ending>
bool direct_Scatter(Ending&& ending, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                    MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, int& error) {
  return scatter_directly(ending, {sendbuf, &sendcount, nullptr, sendtype, nullptr, true}, {recvbuf, recvcount, recvtype}, root,
                          comm, error);
}

template <typename Ending>
bool direct_Scatterv(Ending&& ending, const void* sendbuf, Numbers sendcounts, Numbers displs, MPI_Datatype sendtype,
                     void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, int& error) {
  return scatter_directly(ending, {sendbuf, sendcounts, displs, sendtype, nullptr}, {recvbuf, recvcount, recvtype}, root, comm,
                          error);
}

template <typename Ending>
bool direct_Allgather(Ending&& ending, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                      MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, int& error) {
  return allgather_directly(ending, {sendbuf, sendcount, sendtype}, {recvbuf, &recvcount, nullptr, recvtype, nullptr, true},
                            comm, error);
}

template <typename Ending>
bool direct_Allgatherv(Ending&& ending, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                       Numbers recvcounts, Numbers displs, MPI_Datatype recvtype, MPI_Comm comm, int& error) {
  return allgather_directly(ending, {sendbuf, sendcount, sendtype}, {recvbuf, recvcounts, displs, recvtype, nullptr}, comm,
                            error);
}

template <typename Ending>
bool direct_Alltoall(Ending&& ending, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                     MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, int& error) {
  return alltoall_directly(ending, {sendbuf, &sendcount, nullptr, sendtype, nullptr, true},
                           {recvbuf, &recvcount, nullptr, recvtype, nullptr, true}, comm, error);
}

template <typename Ending>
bool direct_Alltoallv(Ending&& ending, const void* sendbuf, Numbers sendcounts, Numbers sdispls, MPI_Datatype sendtype,
                      void* recvbuf, Numbers recvcounts, Numbers rdispls, MPI_Datatype recvtype, MPI_Comm comm, int& error) {
  return alltoall_directly(ending, {sendbuf, sendcounts, sdispls, sendtype, nullptr},
                           {recvbuf, recvcounts, rdispls, recvtype, nullptr}, comm, error);
}

template <typename Ending>
bool direct_Alltoallw(Ending&& ending, const void* sendbuf, Numbers sendcounts, Numbers sdispls, const MPI_Datatype* sendtypes,
                      void* recvbuf, Numbers recvcounts, Numbers rdispls, const MPI_Datatype* recvtypes, MPI_Comm comm,
                      int& error) {
  Communicator* communicator = collective_on(comm);
  if (communicator == nullptr) {
    return false;
  }
  const bool in_place = sendbuf == MPI_IN_PLACE;
  const TypedParts from = {sendbuf, sendcounts, sdispls, sendtypes};
  const TypedParts into = {recvbuf, recvcounts, rdispls, recvtypes};
  if (!can_exchange<Ending>(in_place) || !into.look_at_datatypes(communicator->size) ||
      (!in_place && !from.look_at_datatypes(communicator->size))) {
    return false;
  }
  error = exchange_all(ending, *communicator, from, into, in_place, comm);
  return true;
}

}  // namespace headroom::mpi
