// See staged_collectives.h.
#include "mpi/backend/collectives/staged_collectives.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/system_calls.h"
#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/collectives/barriers.h"
#include "mpi/backend/collectives/collectives.h"
#include "mpi/backend/collectives/exchange.h"
#include "mpi/backend/collectives/folding.h"
#include "mpi/backend/collectives/nonblocking_form.h"
#include "mpi/backend/failing.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/memory.h"
#include "mpi/backend/messages/freed_communicators.h"
#include "mpi/backend/messages/network.h"
#include "mpi/backend/messages/request_contents.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/objects/datatypes.h"
#include "mpi/backend/objects/operations.h"
#include "mpi/backend/state.h"
#include "mpi/services.h"

namespace headroom::mpi {
namespace {

Stages* all_stages = nullptr;  // those with a communicator of leaders, to be given back before MPI_Finalize

constexpr uint64_t kMostStaged = 64 << 10;

/// The communicator of this node's ranks among those of `communicator`.
Communicator* make_local(const Communicator& communicator, const int* node_of_rank) {
  Communicator* local = known_communicators.take();
  local->members = static_cast<int32_t*>(memory_or_abort(sizeof(int32_t) * static_cast<size_t>(communicator.size)));
  local->handle.store(MPI_COMM_NULL, std::memory_order_relaxed);
  local->direct = true;
  local->references = 1;
  local->context = mix(communicator.context, 0x10ca1);
  for (int rank = 0; rank < communicator.size; ++rank) {
    if (node_of_rank[rank] == node_of_rank[communicator.rank]) {
      local->rank = rank == communicator.rank ? local->size : local->rank;
      local->members[local->size++] = communicator.members[rank];
    }
  }
  return local;
}

/// The leaders' communicator. Made by the leaders alone: MPICH counts collectives, and the making of communicators is made of
/// them. And made from a communicator that no receive of the program's is posted on: Open MPI 5 makes it by messages with that
/// tag on the one it is made from, and a receive from any source with any tag would get them.
MPI_Comm make_leaders(const Communicator& communicator, MPI_Comm comm, const int* leaders, int nodes) {
  // Several threads may do this at once, for communicators that have leaders in common.
  const int tag = static_cast<int>(communicator.context % static_cast<uint64_t>(highest_tag));
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group of_leaders = MPI_GROUP_NULL;
  real.Comm_group[1](comm, &group);
  real.Group_incl[1](group, nodes, leaders, &of_leaders);
  end_job_at(real.Comm_create_group[1](private_world, of_leaders, tag, &made),
             "making a communicator of each node's first rank");
  real.Group_free[1](&of_leaders);
  real.Group_free[1](&group);
  real.Comm_set_errhandler[1](made, MPI_ERRORS_RETURN);  // errors are raised on the program's communicator
  return made;
}

/// Makes what the stages need: all ranks come here in the first of these calls on a communicator.
Stages* make_stages(Communicator& communicator, MPI_Comm comm) {
  arrive_together(comm);
  const InsideLibrary inside;
  const WithoutSlot waiting;
  const auto size = static_cast<size_t>(communicator.size);
  auto* stages = static_cast<Stages*>(memory_or_abort(sizeof(Stages) + size * sizeof(int)));
  auto* leaders = static_cast<int*>(memory_or_abort(size * sizeof(int)));
  stages->node_of_rank = reinterpret_cast<int*>(stages + 1);
  stages->leaders = MPI_COMM_NULL;
  const int nodes = number_nodes(comm, communicator.size, stages->node_of_rank, leaders);
  stages->local = make_local(communicator, stages->node_of_rank);
  if (stages->local->rank == 0) {
    stages->leaders = make_leaders(communicator, comm, leaders, nodes);
    const base::LockHolder lock(look_up_lock);
    stages->next = all_stages;
    stages->link = &all_stages;
    if (all_stages != nullptr) {
      all_stages->link = &stages->next;
    }
    all_stages = stages;
  }
  free(leaders);
  return stages;
}

/// Open MPI holds a lock of its own while it deletes a communicator's attributes, and takes it for what is looked up under
/// ours: nothing is locked for stages that are not linked any more, as those of a communicator that is being freed.
void unlink_stages(Stages& stages) {
  if (stages.link == nullptr) {
    return;
  }
  const base::LockHolder lock(look_up_lock);
  if (stages.link != nullptr) {
    *stages.link = stages.next;
    if (stages.next != nullptr) {
      stages.next->link = stages.link;
    }
    stages.link = nullptr;
  }
}

/// Gives the leaders' communicator back; the rest goes with the program's.
void drop_leaders(Stages& stages) {
  unlink_stages(stages);
  if (stages.leaders != MPI_COMM_NULL) {
    const InsideLibrary inside;
    const WithoutSlot waiting;
    real.Comm_free[1](&stages.leaders);
  }
}

/// Before the program's communicator is freed. False if the library must not free it yet.
bool end_communicator(MPI_Comm comm, bool may_be_kept) {
  Communicator* known = direct_on && comm != MPI_COMM_NULL ? communicator_of(comm) : &left_to_library;
  if (known == &left_to_library) {
    return true;
  }
  if (known->stages != nullptr) {
    drop_leaders(*known->stages);
  }
  const InsideLibrary inside;
  give_stand_ins(comm);
  return !(may_be_kept && known->spans && keep_for_requests(comm));
}

inline Stages& stages_of(Communicator& communicator, MPI_Comm comm) {
  if (communicator.stages == nullptr) {
    communicator.stages = make_stages(communicator, comm);
  }
  return *communicator.stages;
}

/// The leaders' part, `blocking` or begun by `start`, as the job has agreed for all collectives.
template <typename Blocking, typename Start>
int among_leaders(Blocking blocking, Start start) {
  const InsideLibrary inside;
  if (nonblocking_form) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int error = start(&request);
    return error == MPI_SUCCESS ? finish_collective(request) : error;
  }
  const WithoutSlot waiting;
  return blocking();
}

int reduce_elements_in_stages(Communicator& communicator, const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype,
                              MPI_Op op, uint64_t element_bytes, MPI_Comm comm) {
  Stages& stages = stages_of(communicator, comm);
  core->count_staged_collective();
  Communicator& local = *stages.local;
  communicator.unseen_allreduces.calls += 1;
  const Reduction reduction = {&local, static_cast<const char*>(sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf),
                               static_cast<char*>(recvbuf), static_cast<uint64_t>(count), Folding(op, datatype, element_bytes)};
  Waits ending;
  Exchange& exchange = ending.begin(local, 0, 0);
  int error = MPI_SUCCESS;
  if (local.rank == 0) {
    fold_whole(exchange, reduction);
    error = among_leaders([&] { return real.Allreduce[1](MPI_IN_PLACE, recvbuf, count, datatype, op, stages.leaders); },
                          [&](MPI_Request* request) {
                            return real.Iallreduce[1](MPI_IN_PLACE, recvbuf, count, datatype, op, stages.leaders, request);
                          });
  } else {
    exchange.send(0, {const_cast<char*>(reduction.own), reduction.bytes(), nullptr});
    exchange.wait_for_sends();  // it may lie where the result goes
  }
  broadcast(ending, exchange, local, {reduction.result, reduction.bytes(), nullptr}, 0);
  exchange.note(reduction.folding.error);
  const int local_error = ending.end(comm);
  return error != MPI_SUCCESS ? raise_error(comm, error) : local_error;
}

}  // namespace

int number_nodes(MPI_Comm comm, int size, int* node_of_rank, int* leaders) {
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  int world_size = 0;
  real.Comm_group[1](comm, &group);
  real.Comm_group[1](MPI_COMM_WORLD, &world);
  real.Group_size[1](world, &world_size);
  auto* ranks = static_cast<int*>(memory_or_abort(sizeof(int) * static_cast<size_t>(2 * size + world_size)));
  int* const in_world = ranks + size;
  int* const number = in_world + size;  // of the node whose first process in the world has that rank, plus one
  for (int rank = 0; rank < size; ++rank) {
    ranks[rank] = rank;
  }
  real.Group_translate_ranks[1](group, size, ranks, world, in_world);
  int nodes = 0;
  for (int rank = 0; rank < size; ++rank) {
    if (in_world[rank] == MPI_UNDEFINED) {
      nodes = 0;
      break;
    }
    int& known = number[first_of_node[in_world[rank]]];
    if (known == 0) {
      leaders[nodes] = rank;
      known = ++nodes;
    }
    node_of_rank[rank] = known - 1;
  }
  real.Group_free[1](&group);
  real.Group_free[1](&world);
  free(ranks);
  return nodes;
}

void drop_all_leaders() {
  while (all_stages != nullptr) {
    drop_leaders(*all_stages);
  }
}

void free_stages(Stages* stages) {
  if (stages != nullptr) {
    unlink_stages(*stages);
    let_go_of(stages->local);
    free(stages);
  }
}

/// kMayBeKept: not for the call that waits for all messages to be over, for all ranks.
#define HEADROOM_COMMUNICATOR_END(Name, kMayBeKept) \
  int serve_##Name(MPI_Comm* comm, Entry entry) {   \
    free_kept_communicators(false);                 \
    if (!end_communicator(*comm, kMayBeKept)) {     \
      *comm = MPI_COMM_NULL;                        \
      return MPI_SUCCESS;                           \
    }                                               \
    const InsideLibrary inside;                     \
    const WaysMayChange change;                     \
    const WithoutSlot waiting;                      \
    return real.Name[entry](comm);                  \
  }

HEADROOM_COMMUNICATOR_END(Comm_free, true)
HEADROOM_COMMUNICATOR_END(Comm_disconnect, false)

int barrier_in_stages(Communicator& communicator, MPI_Comm comm) {
  Stages& stages = stages_of(communicator, comm);
  core->count_staged_collective();
  communicator.unseen_trees.calls += 2;
  Waits ending;
  Exchange& exchange = ending.begin(*stages.local, 0, 0);
  int error = MPI_SUCCESS;
  wait_along_tree(exchange, *stages.local, [&] {
    error = among_leaders([&] { return real.Barrier[1](stages.leaders); },
                          [&](MPI_Request* request) { return real.Ibarrier[1](stages.leaders, request); });
  });
  const int local_error = ending.end(comm);
  return error != MPI_SUCCESS ? raise_error(comm, error) : local_error;
}

int broadcast_in_stages(Communicator& communicator, void* buffer, int count, MPI_Datatype datatype, const Datatype& known,
                        int root, MPI_Comm comm) {
  Stages& stages = stages_of(communicator, comm);
  core->count_staged_collective();
  Communicator& local = *stages.local;
  communicator.unseen_trees.calls += 1;
  const int node = stages.node_of_rank[root];
  const bool here = node == stages.node_of_rank[communicator.rank];
  int first = 0;  // which rank of the node has it first, in the local communicator
  for (int rank = 0; here && rank < root; ++rank) {
    first += stages.node_of_rank[rank] == node ? 1 : 0;
  }
  int error = MPI_SUCCESS;
  const auto leaders_part = [&] {
    if (local.rank == 0) {
      error = among_leaders(
          [&] { return real.Bcast[1](buffer, count, datatype, node, stages.leaders); },
          [&](MPI_Request* request) { return real.Ibcast[1](buffer, count, datatype, node, stages.leaders, request); });
    }
  };
  if (!here) {
    leaders_part();
  }
  Waits ending;
  Exchange& exchange = ending.begin(local, 0, 0);
  const direct::Content content = local.rank == first ? ending.operands().sent(buffer, count, datatype, known)
                                                      : ending.operands().received(buffer, count, datatype, known);
  broadcast(ending, exchange, local, content, first);
  const int local_error = ending.end_one_way(local, comm, Ahead::kInChannels);
  if (here) {
    leaders_part();
  }
  return error != MPI_SUCCESS ? raise_error(comm, error) : local_error;
}

bool broadcast_in_stages(Communicator& communicator, void* buffer, MPI_Count count, MPI_Datatype datatype, int root,
                         MPI_Comm comm, int& error) {
  const Datatype* known = operand_type(buffer, count, datatype);
  uint64_t bytes = 0;  // all ranks name them alike; elements need not be
  if (known == nullptr || root < 0 || root >= communicator.size ||
      __builtin_mul_overflow(static_cast<uint64_t>(count), known->bytes, &bytes) || bytes > kMostStaged) {
    return false;
  }
  error = broadcast_in_stages(communicator, buffer, bytes > 0 ? static_cast<int>(count) : 0, bytes > 0 ? datatype : MPI_BYTE,
                              *known, root, comm);
  return true;
}

bool reduce_in_stages(Communicator& communicator, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype,
                      MPI_Op op, MPI_Comm comm, int& error) {
  if (op == MPI_OP_NULL || count < 0 || order_on(communicator, op, datatype) != Order::kAny) {
    return false;
  }
  const Datatype* known = reduced_type(sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf, count, datatype);
  const uint64_t element_bytes = known != nullptr ? foldable_bytes(*known, datatype) : 0;
  if (element_bytes == 0 || static_cast<uint64_t>(count) > kWholeBytes / element_bytes) {
    return false;
  }
  error = reduce_elements_in_stages(communicator, sendbuf, recvbuf, static_cast<int>(count), datatype, op, element_bytes, comm);
  return true;
}

}  // namespace headroom::mpi
