// See agreement.h.
#include "mpi/backend/agreement.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "base/system_calls.h"
#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/collectives/nonblocking_form.h"
#include "mpi/backend/failing.h"
#include "mpi/backend/messages/network.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/objects/datatypes.h"
#include "mpi/backend/state.h"
#include "mpi/trampolines.h"

namespace headroom::mpi {
namespace {

/// Gives every process what each contributes. Not by a collective: MPICH counts those, and folds sums in another order from
/// some number on.
void exchange(const void* mine, void* all, int bytes, int size) {
  int rank = 0;
  real.Comm_rank[1](MPI_COMM_WORLD, &rank);
  auto* places = static_cast<char*>(all);
  if (rank != 0) {
    real.Send[1](mine, bytes, MPI_BYTE, 0, kPrivateTag, MPI_COMM_WORLD);
    real.Recv[1](all, bytes * size, MPI_BYTE, 0, kPrivateTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return;
  }
  memcpy(places, mine, static_cast<size_t>(bytes));
  for (int other = 1; other < size; ++other) {
    real.Recv[1](places + static_cast<ptrdiff_t>(bytes) * other, bytes, MPI_BYTE, other, kPrivateTag, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
  }
  for (int other = 1; other < size; ++other) {
    real.Send[1](all, bytes * size, MPI_BYTE, other, kPrivateTag, MPI_COMM_WORLD);
  }
}

/// Fills in `first_of_node`.
void find_first_of_node(const NodePlace* places, int size) {
  auto* order = static_cast<int*>(memory_or_abort(sizeof(int) * static_cast<size_t>(size)));
  for (int rank = 0; rank < size; ++rank) {
    order[rank] = rank;
  }
  std::sort(order, order + size, [&](int one, int other) {
    return places[one].node != places[other].node ? places[one].node < places[other].node : one < other;
  });
  for (int at = 0; at < size; ++at) {
    const bool same = at > 0 && places[order[at]].node == places[order[at - 1]].node;
    first_of_node[order[at]] = same ? first_of_node[order[at - 1]] : order[at];
  }
  free(order);
}

}  // namespace

void agree_on_direct(int size) {
  if (size <= 1) {
    return;
  }
  const NodePlace mine = core->node_place();
  const auto count = static_cast<size_t>(size);
  auto* memory = static_cast<char*>(base::reserve_memory(count * (sizeof(NodePlace) + 3 * sizeof(int))));
  if (memory == nullptr) {
    end_job("making a list of the ranks", MPI_ERR_NO_MEM);
  }
  auto* places = reinterpret_cast<NodePlace*>(memory);
  member_of_world_rank = reinterpret_cast<int*>(places + count);
  first_of_node = member_of_world_rank + count;
  int* members = first_of_node + count;
  exchange(&mine, places, sizeof mine, size);
  int here = 0;
  bool asked = true;
  for (int each = 0; each < size; ++each) {
    const bool on_node = places[each].member >= 0 && mine.member >= 0 && places[each].node == mine.node;
    member_of_world_rank[each] = on_node ? static_cast<int>(places[each].member) : -1;
    asked = asked && places[each].member >= 0;
    if (on_node) {
      members[here++] = member_of_world_rank[each];
    }
  }
  find_first_of_node(places, size);
  constexpr char kPossible = 1;
  constexpr char kReductions = 2;
  constexpr char kBetween = 4;
  const char possible = asked && core->open_direct(members, here)
                            ? static_cast<char>(kPossible | (core->reductions_direct() ? kReductions : 0) |
                                                (here < size && core->try_to_open_between() ? kBetween : 0))
                            : char{0};
  auto* answers = reinterpret_cast<char*>(members);  // one each, no longer than the members
  exchange(&possible, answers, 1, size);
  bool all = true;
  bool between = here < size;
  reductions_direct = true;
  for (int each = 0; each < size; ++each) {
    all = all && answers[each] != 0;
    reductions_direct = reductions_direct && (answers[each] & kReductions) != 0;
    between = between && (answers[each] & kBetween) != 0;
  }
  if (all) {
    real.Comm_create_keyval[1](MPI_COMM_NULL_COPY_FN, forget_communicator, &communicator_key, nullptr);
    real.Comm_dup[1](MPI_COMM_SELF, &private_self);
    real.Comm_set_errhandler[1](private_self, MPI_ERRORS_RETURN);  // its errors are ours
    if (here < size) {
      // Not a duplicate: making one is a collective, and MPICH counts those of the world (see exchange).
      MPI_Group group = MPI_GROUP_NULL;
      real.Comm_group[1](MPI_COMM_WORLD, &group);
      end_job_at(real.Comm_create_group[1](MPI_COMM_WORLD, group, kPrivateTag, &private_world),
                 "making a communicator of all ranks");
      real.Comm_set_errhandler[1](private_world, MPI_ERRORS_RETURN);
      real.Group_free[1](&group);
    }
    int provided = MPI_THREAD_SINGLE;
    real.Query_thread[1](&provided);
    if (provided == MPI_THREAD_MULTIPLE) {
      calling_threads = core->endpoint.expect_threads();
      several_threads = true;
    }
    void* value = nullptr;
    int found = 0;
    real.Comm_get_attr[1](MPI_COMM_WORLD, MPI_TAG_UB, &value, &found);
    highest_tag = found != 0 ? *static_cast<int*>(value) : highest_tag;
    if (between) {
      begin_network(size);
      between_on = true;
      nonblocking_form = true;  // a rank that waits in a collective goes on serving others
    }
    know_communicator(MPI_COMM_WORLD, 1);
    know_communicator(MPI_COMM_SELF, 2);
    direct_on = true;
    begin_datatypes();
  }
  core->use_direct(direct_on, asked && !all);
  core->use_between(between_on, here < size);
}

}  // namespace headroom::mpi
