// See network.h.
#include "mpi/backend/messages/network.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/system_calls.h"
#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/failing.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/memory.h"
#include "mpi/backend/messages/ending.h"
#include "mpi/backend/messages/polling.h"
#include "mpi/backend/messages/waiting.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/services.h"

namespace headroom::mpi {
namespace {

constexpr int kRecordTag = 0;

struct NetworkSlot {
  MPI_Request request;
  NetworkSlot* next;
};

MPI_Comm network_comm = MPI_COMM_NULL;
NetworkSlot* free_network_slots = nullptr;
char* network_record = nullptr;                 // the one that has come, or
MPI_Request record_request = MPI_REQUEST_NULL;  // is coming

void check_network(int error) { end_job_at(error, "a message between nodes"); }

NetworkSlot* take_network_slot() {
  if (free_network_slots == nullptr) {
    constexpr size_t kBytes = 4096;
    auto* fresh = static_cast<NetworkSlot*>(base::reserve_memory(kBytes));
    check_network(fresh != nullptr ? MPI_SUCCESS : MPI_ERR_NO_MEM);
    for (size_t at = 0; at < kBytes / sizeof(NetworkSlot); ++at) {
      fresh[at].next = free_network_slots;
      free_network_slots = &fresh[at];
    }
  }
  NetworkSlot* const slot = free_network_slots;
  free_network_slots = slot->next;
  return slot;
}

direct::NetworkTransfer* send_to_network(int rank, int tag, const void* from, uint64_t bytes) {
  const InsideLibrary inside;
  NetworkSlot* const slot = take_network_slot();
  check_network(real.Isend[1](from, static_cast<int>(bytes), MPI_BYTE, rank, tag, network_comm, &slot->request));
  return reinterpret_cast<direct::NetworkTransfer*>(slot);
}

direct::NetworkTransfer* receive_from_network(int rank, int tag, void* into, uint64_t bytes) {
  const InsideLibrary inside;
  NetworkSlot* const slot = take_network_slot();
  check_network(real.Irecv[1](into, static_cast<int>(bytes), MPI_BYTE, rank, tag, network_comm, &slot->request));
  return reinterpret_cast<direct::NetworkTransfer*>(slot);
}

bool test_network_transfer(direct::NetworkTransfer* transfer) {
  const InsideLibrary inside;
  auto* slot = reinterpret_cast<NetworkSlot*>(transfer);
  int done = 0;
  check_network(real.Test[1](&slot->request, &done, MPI_STATUS_IGNORE));
  if (done != 0) {
    slot->next = free_network_slots;
    free_network_slots = slot;
  }
  return done != 0;
}

/// A record that is longer than the library sends at once is announced before it is there, and the user decides how much the
/// library sends at once: so it is received without waiting.
const void* next_network_record(int& rank, uint64_t& bytes) {
  const InsideLibrary inside;
  int done = 0;
  int count = 0;
  MPI_Status status;
  if (record_request == MPI_REQUEST_NULL) {
    MPI_Message message = MPI_MESSAGE_NULL;
    check_network(real.Improbe[1](MPI_ANY_SOURCE, kRecordTag, network_comm, &done, &message, MPI_STATUS_IGNORE));
    if (done == 0) {
      return nullptr;
    }
    check_network(real.Imrecv[1](network_record, static_cast<int>(direct::kRecordBytes), MPI_BYTE, &message, &record_request));
  }
  check_network(real.Test[1](&record_request, &done, &status));
  if (done == 0) {
    return nullptr;
  }
  check_network(real.Get_count[1](&status, MPI_BYTE, &count));
  rank = status.MPI_SOURCE;
  bytes = static_cast<uint64_t>(count);
  return network_record;
}

}  // namespace

void begin_network(int size) {
  MPI_Group group = MPI_GROUP_NULL;
  check_network(real.Comm_group[1](MPI_COMM_WORLD, &group));
  end_job_at(real.Comm_create_group[1](MPI_COMM_WORLD, group, kPrivateTag - 1, &network_comm),
             "making a communicator of all ranks");
  check_network(real.Comm_set_errhandler[1](network_comm, MPI_ERRORS_RETURN));
  check_network(real.Group_free[1](&group));
  network_record = static_cast<char*>(core->endpoint.allocate_for_network(direct::kRecordBytes));
  check_network(network_record != nullptr ? MPI_SUCCESS : MPI_ERR_NO_MEM);
  core->endpoint.begin_between_nodes(
      {[](int rank, const void* record, uint64_t bytes) { return send_to_network(rank, kRecordTag, record, bytes); },
       send_to_network, receive_from_network, test_network_transfer, next_network_record},
      size);
}

void arrive_together(MPI_Comm comm) {
  if (__builtin_expect(!between_on, 1) || comm == MPI_COMM_NULL || !communicator_of(comm)->between) {
    return;
  }
  const InsideLibrary inside;
  MPI_Request request = MPI_REQUEST_NULL;
  if (real.Ibarrier[1](comm, &request) == MPI_SUCCESS) {
    (void)poll_until_done([&](int* done) { return real.Test[1](&request, done, MPI_STATUS_IGNORE); });
  }
}

void end_network() {
  if (network_comm == MPI_COMM_NULL) {
    return;
  }
  const InsideLibrary inside;
  MPI_Request request = MPI_REQUEST_NULL;
  const auto is_done = [&] {
    make_progress();
    waits_for_library = true;
    int done = 0;
    check_network(real.Test[1](&request, &done, MPI_STATUS_IGNORE));
    return done != 0;
  };
  check_network(real.Ibarrier[1](network_comm, &request));
  wait_direct(is_done);
  int size = 0;
  real.Comm_size[1](network_comm, &size);
  auto* says_bye = static_cast<int*>(memory_or_abort(static_cast<size_t>(size) * sizeof(int)));
  for (int rank = 0; rank < size; ++rank) {
    says_bye[rank] = core->endpoint.say_bye_to(rank) ? 1 : 0;
  }
  int expected = 0;
  check_network(real.Ireduce_scatter_block[1](says_bye, &expected, 1, MPI_INT, MPI_SUM, network_comm, &request));
  wait_direct(is_done);
  wait_direct([&] {
    make_progress();
    waits_for_library = true;
    return core->endpoint.byes_come() == expected && core->endpoint.is_drained();
  });
  free(says_bye);
  real.Comm_free[1](&network_comm);
}

}  // namespace headroom::mpi
