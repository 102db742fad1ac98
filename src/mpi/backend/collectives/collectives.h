// Collective calls among ranks of one node.
//
// A collective on a communicator whose messages are direct is made of direct messages in a context of its own, so that
// content goes in one copy from where it is to where it is wanted, whatever the datatypes, and a waiting rank sleeps or gives
// its turn away as in any receive. The messages that a collective is made of depend on the communicator, the operation and the
// total bytes alone, which all ranks know alike. No rank waits for ranks that it needs nothing of, except for the tree of the
// short forms.
//
// Left to the library: intercommunicators and communicators that are not direct, the persistent forms, and reductions whose
// result depends on the order of folding (collective_reductions.h), unless --reductions direct.
//
// The blocking and the nonblocking form of a call are one function here: it begins the messages and leaves their end to its
// Ending, which waits for them (Waits), or makes a request of them (nonblocking_collectives.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "mpi/backend/abi.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/objects/datatypes.h"
#include "mpi/backend/state.h"
#include "mpi/trampolines.h"

namespace headroom::mpi {

/// The communicator, if its collectives are made here.
inline Communicator* collective_on(MPI_Comm comm) {
  Communicator* communicator = communicator_of(comm);
  return communicator->direct && communicator->size > 1 ? communicator : nullptr;
}

/// The communicator, if its collectives are made in stages (staged_collectives.h).
inline Communicator* staged_on(MPI_Comm comm) {
  Communicator* communicator = communicator_of(comm);
  return communicator->staged ? communicator : nullptr;
}

/// A collective that the library does, although messages are direct.
inline void count_left_to_library(const Communicator& communicator, MPI_Comm comm) {
  if (comm != MPI_COMM_NULL && communicator.size != 1) {
    core->count_passed_collective(communicator.direct                 ? CollectivePassedFor::kOperation
                                  : &communicator == &left_to_library ? CollectivePassedFor::kCommunicator
                                                                      : CollectivePassedFor::kOtherNodes,
                                  !several_threads);
  }
}

/// Whether collectives on it may be made here.
inline bool may_be_direct(const Communicator& communicator) { return communicator.direct || communicator.staged; }

/// The Datatype of `count` elements at `buffer`; nullptr where MPI forbids the arguments. Where there are no elements nobody
/// looks at it: some libraries refuse MPI_DATATYPE_NULL there, some do not, in some calls; and while one rank is refused, or
/// returns at once, the others would wait for it here.
inline Datatype* operand_type(const void* buffer, MPI_Count count, MPI_Datatype datatype) {
  if (count == 0) {
    return &no_elements;
  }
  Datatype* known = count > 0 ? datatype_of(datatype) : nullptr;
  const bool nowhere =
      buffer == nullptr && known != nullptr && known->usable && known->layout == nullptr && known->bytes > 0 && count > 0;
  return nowhere ? nullptr : known;
}

/// The same of a reduction, whose count and datatype all ranks name alike: of no elements, too, the datatype decides.
inline Datatype* reduced_type(const void* buffer, MPI_Count count, MPI_Datatype datatype) {
  return count == 0 ? datatype_of(datatype) : operand_type(buffer, count, datatype);
}

/// Where the element with that index lies.
inline char* element(const void* buffer, int64_t index, const Datatype& datatype) {
  return static_cast<char*>(const_cast<void*>(buffer)) + index * datatype.extent;
}

constexpr int kTreeArms = 8;

/// The short forms' tree: each rank has up to kTreeArms below it. `rank` is counted from the root on.
struct TreePlace {
  int rank;
  int size;
  int root;
  [[nodiscard]] bool is_root() const { return rank == 0; }
  [[nodiscard]] int parent() const { return in_communicator((rank - 1) / kTreeArms); }
  [[nodiscard]] int first_below() const { return rank * kTreeArms + 1; }
  [[nodiscard]] int end_below() const { return std::min(first_below() + kTreeArms, size); }
  [[nodiscard]] int in_communicator(int place) const { return (place + root) % size; }
};

/// This rank's place in the tree of `root`.
inline TreePlace place_in_tree(const Communicator& communicator, int root) {
  return {(communicator.rank - root + communicator.size) % communicator.size, communicator.size, root};
}

/// MPICH counts a communicator's allreduces, and its broadcasts and reductions together (a barrier is one of each); from the
/// fifth on it reduces in another order. Before it is to reduce, it gets to see as many as it would have without Headroom.
constexpr uint32_t kMostShown = 8;  // in all: it does not count further than a few

/// Makes up to kMostShown of them, of the library's, on all ranks of `comm`.
[[gnu::noinline]] void show_what_is_unseen(MPI_Comm comm, Unseen& unseen, Unseen Communicator::* which);

/// Whether the library will reduce, and does not refuse the arguments at once: then the others may not have called it.
inline bool may_be_reduced(const void* sendbuf, const void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op) {
  return count > 0 && op != MPI_OP_NULL &&
         operand_type(sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf, count, datatype) != nullptr;
}

/// The same, if the library counts and has not seen them all.
inline void show_unseen(Communicator& communicator, MPI_Comm comm, Unseen Communicator::* which) {
  Unseen& unseen = communicator.*which;
  if (library_counts && unseen.calls != 0 && unseen.shown < kMostShown) {
    show_what_is_unseen(comm, unseen, which);
  }
}

}  // namespace headroom::mpi
