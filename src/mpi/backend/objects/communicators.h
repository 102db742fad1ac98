// Communicators whose messages are direct.
//
// The way of messages between two ranks of a communicator is fixed when it is made, alike on both: direct if both are on one
// node, and it descends from MPI_COMM_WORLD by constructors that all of its parent call (or that are called by group and tag);
// everything else (other nodes, intercommunicators, spawned, joined and session-made communicators, and their descendants) is
// the library's. A Communicator hangs on an attribute of its handle, since handles are used again.
//
// Its context is computed, not communicated: a hash of its parent's context, the constructor, and how many constructors the
// parent has seen. Groups that one MPI_Comm_split makes have the same context, which does no harm: they are disjoint, and
// messages are told apart by their processes.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "base/system_calls.h"
#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/objects/reused_objects.h"

namespace headroom::mpi {

struct CollectivePlaces;
struct Neighborhood;
enum class Order : uint8_t;
struct Stages;

/// Collective calls that the library has not seen, and how many it was shown since.
struct Unseen {
  uint32_t calls;
  uint32_t shown;
};

struct Communicator {
  std::atomic<MPI_Comm> handle;
  bool direct;   // all of its ranks are on this node
  bool spans;    // some are, and others are not, and messages to these are the library's
  bool between;  // it has ranks on other nodes, and messages to them are matched here, too
  uint64_t context;
  uint64_t constructed;  // constructors called on it
  int rank;
  int size;
  int32_t* members;                  // by rank: of the node session, or negative: on another node (members_of())
  std::atomic<uint32_t> references;  // the communicator's own, and those of persistent requests and nonblocking collectives
  uint32_t collectives;              // that were direct
  uint32_t one_way;                  // of these, in which some ranks only send
  Unseen unseen_allreduces;          // by the library (collectives/collectives.h)
  Unseen unseen_trees;
  MPI_Op last_op;              // of a reduction, and
  MPI_Datatype last_datatype;  // for which that is known (operations.h):
  Order last_order;
  CollectivePlaces* places;    // for the messages of a collective
  bool knows_tally;            // whether its barriers count is decided, with the first one
  bool owns_tally;             // it was made here
  direct::Tally* tally;        // nullptr: they go along a tree
  uint64_t counted;            // by the tally when the last barrier was over
  bool staged;                 // it spans nodes, some of which have several of its ranks; alike on all ranks
  Stages* stages;              // nullptr: not needed yet (collectives/staged_collectives.h)
  Neighborhood* neighborhood;  // nullptr: not asked for yet (collectives/neighborhoods.h)
  Communicator* next_unused;
};

extern ReusedObjects<Communicator> known_communicators;
extern int communicator_key;       // of the attribute that a Communicator hangs on
extern int* member_of_world_rank;  // of this node's session, or -1
extern int highest_tag;
extern MPI_Comm private_self;         // this process, for handles (messages/matched_messages.h)
extern MPI_Comm private_world;        // all processes, where they are on several nodes (collectives/staged_collectives.h)
extern Communicator left_to_library;  // stands for every communicator that is left to the library
extern int* first_of_node;            // by rank of the world: the first rank on its node
extern bool between_on;               // messages between nodes are matched here (messages/network.h); the whole job has agreed
extern base::FutexLock look_up_lock;  // for what is made when a communicator or a datatype is first used

// A program may use some dozens in turn; handles of neighbours differ in their last bits.
constexpr int kCacheEntries = 256;

extern std::atomic<Communicator*> communicator_cache[kCacheEntries];

/// A number for a handle, different for handles that a program uses at the same time, mostly.
template <typename Handle>
uint64_t number_of(Handle handle) {
  if constexpr (std::is_pointer_v<Handle>) {
    const auto value = reinterpret_cast<uint64_t>(handle);
    return value ^ (value >> 6);  // objects' addresses, or small numbers (the standard interface)
  } else {
    return static_cast<uint64_t>(static_cast<uint32_t>(handle));
  }
}

/// A hash of both, in this order.
uint64_t mix(uint64_t one, uint64_t other);

/// A user fewer: the last one gives back what the communicator has.
void let_go_of_tally(const Communicator& communicator);
void let_go_of(Communicator* communicator);
/// Deletes the attribute that communicator_key stands for.
int forget_communicator(MPI_Comm comm, int keyval, void* value, void* state);

/// Notes a communicator whose messages are direct; all of its ranks know it by `context`.
void know_communicator(MPI_Comm comm, uint64_t context);

/// As communicator_of(), past the cache.
Communicator* look_up_communicator(MPI_Comm comm);

/// The Communicator of `comm`; never nullptr.
inline Communicator* communicator_of(MPI_Comm comm) {
  Communicator* cached = communicator_cache[number_of(comm) % kCacheEntries].load(std::memory_order_acquire);
  if (__builtin_expect(cached != nullptr && cached->handle.load(std::memory_order_acquire) == comm, 1)) {
    return cached;
  }
  return look_up_communicator(comm);
}

/// The context of what the next constructor called on `parent` makes; false if that is the library's.
bool next_context(MPI_Comm parent, uint64_t constructor, uint64_t& context);

/// A constructor that all of `parent` call has made `made` (MPI_COMM_NULL where this process is no part of it).
void note_constructor(int error, MPI_Comm parent, int constructor, MPI_Comm made);

constexpr int kPrivateTag = 32766;  // of messages and constructors of ours on the program's communicators

// This thread waits for a request of the library's among others, so it must not sleep long.
constinit extern thread_local bool waits_for_library;

/// Gives the library progress; true if something is expected of it.
bool poke_library();

}  // namespace headroom::mpi
