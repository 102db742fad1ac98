// Barriers and broadcasts among ranks of one node: see collectives.h.
//
// Short forms go along a tree, whose ranks wake each other; where ranks share processors, barriers go by a tally that all look
// at (direct/tally.h), as the root decides in the first one. Long content is fetched from the root by everybody at once. Calls
// in which some ranks only send end with a barrier every so often, so that no rank runs ahead without end.
#pragma once

#include <cstdint>
#include <type_traits>

#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/collectives/collectives.h"
#include "mpi/backend/collectives/exchange.h"
#include "mpi/backend/collectives/staged_collectives.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/objects/datatypes.h"

namespace headroom::mpi {

constexpr direct::Content kNothing = {nullptr, 0, nullptr};

/// The ranks come up a tree and leave down it again; the root does `at_root` when all have come. All get its `word`.
template <typename AtRoot>
void wait_along_tree(Exchange& exchange, const Communicator& communicator, AtRoot at_root,
                     const direct::Content& word = kNothing) {
  const TreePlace place = place_in_tree(communicator, 0);
  for (int below = place.first_below(); below < place.end_below(); ++below) {
    exchange.receive(below, kNothing);
  }
  exchange.wait_for_receives();
  if (place.is_root()) {
    at_root();
  } else {
    exchange.send(place.parent(), kNothing);
    exchange.receive(place.parent(), word);
    exchange.wait_for_receives();
  }
  for (int below = place.first_below(); below < place.end_below(); ++below) {
    exchange.send(below, word);
  }
}

/// A communicator's first barrier. The root decides how the others are done: each rank may see differently whether ranks share
/// processors.
void wait_and_decide_on_tally(Exchange& exchange, Communicator& communicator);

/// Whether short collectives on it go by a tally; the first of them finds out.
bool has_tally(Exchange& exchange, Communicator& communicator);

/// Arrives at the tally, which the communicator has, and waits until all of its ranks have.
void wait_at_tally(Communicator& communicator);

/// A nonblocking barrier is of messages from everybody to everybody: nobody has to pass anything on while it computes.
constexpr int kMostInFlatBarrier = 64;

/// Up to here a collective computes nothing to speak of between its waits.
constexpr uint64_t kShortContent = 64 << 10;

template <typename Ending>
int barrier_among(Ending&& ending, Communicator& communicator, MPI_Comm comm) {
  const int size = communicator.size;
  Exchange& exchange = ending.begin(communicator, size, size);
  if (!std::remove_reference_t<Ending>::kMayWait || size == 2) {
    for (int step = 1; step < size; ++step) {
      exchange.send((communicator.rank + step) % size, kNothing);
    }
    for (int step = 1; step < size; ++step) {
      ending.receive((communicator.rank - step + size) % size, kNothing);
    }
  } else if constexpr (std::remove_reference_t<Ending>::kMayWait) {
    if (!communicator.knows_tally) {
      wait_and_decide_on_tally(exchange, communicator);  // a barrier by itself
    } else if (communicator.tally != nullptr) {
      wait_at_tally(communicator);
    } else {
      wait_along_tree(exchange, communicator, [] {});
    }
  }
  return ending.end(comm);
}

template <typename Ending>
bool direct_Barrier(Ending&& ending, MPI_Comm comm, int& error) {
  const SeveralWaits waits(Ending::kMayWait);
  if constexpr (Ending::kMayWait) {
    if (Communicator* staged = staged_on(comm)) {
      error = barrier_in_stages(*staged, comm);
      return true;
    }
  }
  Communicator* communicator = collective_on(comm);
  if (communicator == nullptr || (!Ending::kMayWait && communicator->size > kMostInFlatBarrier)) {
    return false;
  }
  if constexpr (Ending::kMayWait) {
    communicator->unseen_trees.calls += 2;
  }
  error = barrier_among(ending, *communicator, comm);
  return true;
}

/// Long content is fetched from the root by all at once.
template <typename Ending>
void broadcast_flat(Ending& ending, Exchange& exchange, const Communicator& communicator, const direct::Content& content,
                    int root) {
  const TreePlace place = place_in_tree(communicator, root);
  if (!place.is_root()) {
    ending.receive(root, content);
  }
  for (int peer = 1; place.is_root() && peer < communicator.size; ++peer) {
    exchange.send(place.in_communicator(peer), content, direct::SendKind::kBroadcast);
  }
}

/// Short content goes down the tree.
void broadcast(Waits& ending, Exchange& exchange, const Communicator& communicator, const direct::Content& content, int root);

template <typename Ending>
bool direct_Bcast(Ending&& ending, void* buffer, MPI_Count count, MPI_Datatype datatype, int root, MPI_Comm comm, int& error) {
  if constexpr (Ending::kMayWait) {
    if (Communicator* staged = staged_on(comm)) {
      return broadcast_in_stages(*staged, buffer, count, datatype, root, comm, error);
    }
  }
  Communicator* communicator = collective_on(comm);
  const Datatype* known = communicator != nullptr ? operand_type(buffer, count, datatype) : nullptr;
  if (known == nullptr || root < 0 || root >= communicator->size) {
    return false;
  }
  const SeveralWaits waits(Ending::kMayWait && known->bytes * static_cast<uint64_t>(count) <= kShortContent);
  const bool is_root = communicator->rank == root;
  Exchange& exchange = ending.begin(*communicator, is_root ? communicator->size : 0, 1);
  const direct::Content content = is_root ? ending.operands().sent(buffer, count, datatype, *known)
                                          : ending.operands().received(buffer, count, datatype, *known);
  if constexpr (Ending::kMayWait) {
    communicator->unseen_trees.calls += 1;
    broadcast(ending, exchange, *communicator, content, root);
  } else {
    broadcast_flat(ending, exchange, *communicator, content, root);
  }
  error = ending.end_one_way(*communicator, comm, Ahead::kInChannels);
  return true;
}

}  // namespace headroom::mpi
