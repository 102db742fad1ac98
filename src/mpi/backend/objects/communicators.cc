// See communicators.h.
#include "mpi/backend/objects/communicators.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/system_calls.h"
#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/collectives/neighborhoods.h"
#include "mpi/backend/collectives/staged_collectives.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/memory.h"
#include "mpi/backend/messages/freed_communicators.h"
#include "mpi/backend/objects/reused_objects.h"
#include "mpi/backend/state.h"
#include "mpi/services.h"

namespace headroom::mpi {
namespace {

/// The endpoint's numbers of the communicator's processes, by rank; `here` is how many are on this node.
int32_t* members_of(MPI_Comm comm, int size, int& here) {
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  real.Comm_group[1](comm, &group);
  real.Comm_group[1](MPI_COMM_WORLD, &world);
  const auto count = static_cast<size_t>(size);
  auto* ranks = static_cast<int*>(memory_or_abort(2 * count * sizeof(int)));
  auto* members = static_cast<int32_t*>(memory_or_abort(count * sizeof(int32_t)));
  here = 0;
  for (int rank = 0; rank < size; ++rank) {
    ranks[rank] = rank;
  }
  real.Group_translate_ranks[1](group, size, ranks, world, ranks + count);
  for (int rank = 0; rank < size; ++rank) {
    const int in_world = ranks[count + static_cast<size_t>(rank)];
    members[rank] = in_world == MPI_UNDEFINED             ? -1
                    : member_of_world_rank[in_world] >= 0 ? member_of_world_rank[in_world]
                                                          : direct::member_of_rank(in_world);
    here += members[rank] >= 0 ? 1 : 0;
  }
  real.Group_free[1](&group);
  real.Group_free[1](&world);
  free(ranks);
  return members;
}

bool has_nodes_with_several(MPI_Comm comm, int size) {
  auto* places = static_cast<int*>(memory_or_abort(2 * sizeof(int) * static_cast<size_t>(size)));
  const int nodes = number_nodes(comm, size, places, places + size);
  free(places);
  return nodes > 1 && nodes < size;
}

// MPI_Comm_idup: known when its communicator is first used.
struct Promised {
  MPI_Comm handle;
  uint64_t context;
  Promised* next;
};

Promised* promised = nullptr;

/// MPI_Comm_create_group is called by the group alone: counted by parent, group and tag.
uint64_t context_of_group(const Communicator& parent, MPI_Group group, int tag) {
  struct Seen {
    uint64_t key;
    uint64_t count;
    Seen* next;
  };
  static Seen* seen = nullptr;
  int size = 0;
  real.Group_size[1](group, &size);
  MPI_Group world = MPI_GROUP_NULL;
  real.Comm_group[1](MPI_COMM_WORLD, &world);
  uint64_t key = mix(parent.context, static_cast<uint64_t>(tag));
  for (int rank = 0; rank < size; ++rank) {
    int in_world = MPI_UNDEFINED;
    real.Group_translate_ranks[1](group, 1, &rank, world, &in_world);
    key = mix(key, static_cast<uint64_t>(in_world));
  }
  real.Group_free[1](&world);
  const base::LockHolder lock(look_up_lock);
  for (Seen* each = seen; each != nullptr; each = each->next) {
    if (each->key == key) {
      return mix(key, ++each->count);
    }
  }
  auto* more = static_cast<Seen*>(memory_or_abort(sizeof(Seen)));
  *more = {key, 0, seen};
  seen = more;
  return mix(key, 0);
}

void promise(int error, MPI_Comm parent, int constructor, MPI_Comm made) {
  uint64_t context = 0;
  if (direct_on && error == MPI_SUCCESS && next_context(parent, static_cast<uint64_t>(constructor), context)) {
    auto* more = static_cast<Promised*>(memory_or_abort(sizeof(Promised)));
    const base::LockHolder lock(look_up_lock);
    *more = {made, context, promised};
    promised = more;
  }
}

}  // namespace

ReusedObjects<Communicator> known_communicators;
int communicator_key = MPI_KEYVAL_INVALID;
int* member_of_world_rank = nullptr;
int highest_tag = 32767;
MPI_Comm private_self = MPI_COMM_NULL;
MPI_Comm private_world = MPI_COMM_NULL;
Communicator left_to_library = {};
int* first_of_node = nullptr;
bool between_on = false;
base::FutexLock look_up_lock;
std::atomic<Communicator*> communicator_cache[kCacheEntries];

uint64_t mix(uint64_t one, uint64_t other) {
  uint64_t value = (one ^ (other + 0x9e3779b97f4a7c15)) * 0xff51afd7ed558ccd;
  value ^= value >> 29;
  value *= 0xc4ceb9fe1a85ec53;
  return value ^ (value >> 32);
}

void let_go_of_tally(const Communicator& communicator) {
  if (communicator.tally != nullptr) {
    core->endpoint.let_go_of_tally(communicator.tally, communicator.owns_tally ? communicator.size : 0);
  }
}

void let_go_of(Communicator* communicator) {
  if (--communicator->references == 0) {
    free(communicator->members);
    free(communicator->places);
    let_go_of_tally(*communicator);
    free(communicator->neighborhood);
    free_stages(communicator->stages);
    known_communicators.give_back(communicator, MPI_COMM_NULL);
  }
}

int forget_communicator(MPI_Comm, int, void* value, void*) {
  auto* known = static_cast<Communicator*>(value);
  if (known == &left_to_library) {
    return MPI_SUCCESS;
  }
  Communicator* cached = known;
  communicator_cache[number_of(known->handle.load(std::memory_order_relaxed)) % kCacheEntries].compare_exchange_strong(cached,
                                                                                                                       nullptr);
  known->handle.store(MPI_COMM_NULL, std::memory_order_relaxed);
  let_go_of(known);
  return MPI_SUCCESS;
}

void know_communicator(MPI_Comm comm, uint64_t context) {
  int size = 0;
  real.Comm_size[1](comm, &size);
  int here = 0;
  int32_t* members = members_of(comm, size, here);
  Communicator* known = known_communicators.take();
  known->direct = here == size;
  known->spans = here > 1 && here < size && !between_on;  // alike on all ranks of the node
  known->between = here < size && between_on;
  known->staged = here < size && has_nodes_with_several(comm, size);
  known->references = 1;
  known->context = context;
  known->size = size;
  known->members = members;
  real.Comm_rank[1](comm, &known->rank);
  known->handle.store(comm, std::memory_order_release);  // see compile_datatype()
  real.Comm_set_attr[1](comm, communicator_key, known);
}

Communicator* look_up_communicator(MPI_Comm comm) {
  if (comm == MPI_COMM_NULL) {
    return &left_to_library;
  }
  const InsideLibrary inside;
  const base::LockHolder lock(look_up_lock);
  void* value = nullptr;
  int found = 0;
  if (real.Comm_get_attr[1](comm, communicator_key, &value, &found) != MPI_SUCCESS) {
    return &left_to_library;
  }
  for (Promised** link = &promised; found == 0 && *link != nullptr; link = &(*link)->next) {
    if ((*link)->handle == comm) {
      Promised* const kept = *link;
      *link = kept->next;
      know_communicator(comm, kept->context);
      free(kept);
      real.Comm_get_attr[1](comm, communicator_key, &value, &found);
      break;
    }
  }
  if (found == 0) {
    real.Comm_set_attr[1](comm, communicator_key, &left_to_library);
    return &left_to_library;
  }
  auto* known = static_cast<Communicator*>(value);
  if (known != &left_to_library) {
    communicator_cache[number_of(comm) % kCacheEntries].store(known, std::memory_order_release);
  }
  return known;
}

bool next_context(MPI_Comm parent, uint64_t constructor, uint64_t& context) {
  Communicator* known = communicator_of(parent);
  if (known == &left_to_library) {
    return false;
  }
  context = mix(mix(known->context, constructor), ++known->constructed);
  return true;
}

void note_constructor(int error, MPI_Comm parent, int constructor, MPI_Comm made) {
  free_kept_communicators(false);
  uint64_t context = 0;
  // A call that the library has refused does not count: the others may not have made it.
  if (!direct_on || error != MPI_SUCCESS || !next_context(parent, static_cast<uint64_t>(constructor), context) ||
      made == MPI_COMM_NULL) {
    return;
  }
  int is_inter = 0;
  real.Comm_test_inter[1](made, &is_inter);
  if (is_inter == 0) {
    know_communicator(made, context);
    agree_on_neighborhood(made);
  }
}

int serve_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* newcomm, Entry entry) {
  const InsideLibrary inside;
  const WithoutSlot waiting;
  const int error = real.Comm_create_group[entry](comm, group, tag, newcomm);
  Communicator* parent =
      direct_on && error == MPI_SUCCESS && *newcomm != MPI_COMM_NULL ? communicator_of(comm) : &left_to_library;
  if (parent != &left_to_library) {
    know_communicator(*newcomm, context_of_group(*parent, group, tag));
  }
  return error;
}

int serve_Comm_idup(MPI_Comm comm, MPI_Comm* newcomm, MPI_Request* request, Entry entry) {
  const InsideLibrary inside;
  const int error = real.Comm_idup[entry](comm, newcomm, request);
  promise(error, comm, 1000, error == MPI_SUCCESS ? *newcomm : MPI_COMM_NULL);
  return error;
}

int serve_Comm_idup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm* newcomm, MPI_Request* request, Entry entry) {
  const InsideLibrary inside;
  const int error = real.Comm_idup_with_info[entry](comm, info, newcomm, request);
  promise(error, comm, 1001, error == MPI_SUCCESS ? *newcomm : MPI_COMM_NULL);
  return error;
}

constinit thread_local bool waits_for_library = false;

bool poke_library() {
  const InsideLibrary inside;
  int found = 0;
  real.Iprobe[1](MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
  return waits_for_library || (between_on && core->endpoint.expects_network());
}

}  // namespace headroom::mpi
