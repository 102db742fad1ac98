// See nonblocking_form.h.
#include "mpi/backend/collectives/nonblocking_form.h"

#include <cstdint>

#include "mpi/backend/abi.h"
#include "mpi/backend/messages/polling.h"

namespace headroom::mpi {
namespace {

/// Whether all of the communicator's processes were part of this MPI_COMM_WORLD; remembered on the communicator.
bool within_world(MPI_Comm comm) {
  int is_inter = 1;
  if (real.Comm_test_inter[1](comm, &is_inter) != MPI_SUCCESS || is_inter != 0) {
    return false;
  }
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  real.Comm_group[1](comm, &group);
  real.Comm_group[1](MPI_COMM_WORLD, &world);
  int size = 0;
  real.Group_size[1](group, &size);
  bool within = true;
  for (int rank = 0; rank < size && within; ++rank) {
    int translated = MPI_UNDEFINED;
    real.Group_translate_ranks[1](group, 1, &rank, world, &translated);
    within = translated != MPI_UNDEFINED;
  }
  real.Group_free[1](&group);
  real.Group_free[1](&world);
  return within;
}

}  // namespace

bool nonblocking_form = false;
int form_key = MPI_KEYVAL_INVALID;

int finish_collective(MPI_Request& request) {
  core->count_nonblocking_collective();
  return poll_until_done([&](int* done) { return real.Test[1](&request, done, MPI_STATUS_IGNORE); });
}

bool takes_nonblocking_form(MPI_Comm comm) {
  if (!nonblocking_form || comm == MPI_COMM_NULL) {
    return false;
  }
  if (comm == MPI_COMM_WORLD) {
    return true;
  }
  void* value = nullptr;
  int found = 0;
  real.Comm_get_attr[1](comm, form_key, &value, &found);
  if (found == 0) {
    value = reinterpret_cast<void*>(static_cast<intptr_t>(within_world(comm) ? 1 : 2));
    real.Comm_set_attr[1](comm, form_key, value);
  }
  return reinterpret_cast<intptr_t>(value) == 1;
}

}  // namespace headroom::mpi
