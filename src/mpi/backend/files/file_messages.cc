// See file_messages.h.
#include "mpi/backend/files/file_messages.h"

#include <algorithm>
#include <cstdint>

#include "collio/functions.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/failing.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/messages/direct_requests.h"
#include "mpi/backend/messages/ending.h"
#include "mpi/backend/messages/routes.h"
#include "mpi/backend/messages/starting.h"
#include "mpi/backend/messages/waiting.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/services.h"

namespace headroom::mpi {
namespace {

/// Waits until `done`, which looks at the library's part itself. `in_library`: whether something is expected of it.
template <typename Done, typename InLibrary>
void wait_in_file_call(Done done, InLibrary in_library) {
  wait_direct([&] {
    make_progress();
    const bool is_done = done();
    waits_for_library = in_library();
    return is_done;
  });
}

}  // namespace

void check_transfer(int error) { end_job_at(error, "a message of a collective call on a file"); }

void send_of_file(void* context, int slot, int rank, int tag, const void* from, int64_t bytes) {
  auto& messages = *static_cast<FileMessages*>(context);
  FileTransfer& transfer = messages.transfers[slot];
  const Route route = route_of_send(from, bytes, MPI_BYTE, rank, tag, messages.comm);
  transfer.active = true;
  transfer.is_direct = route.communicator != nullptr;
  if (transfer.is_direct) {
    check_transfer(start_send(transfer.request, route,
                              {const_cast<void*>(from), bytes, MPI_BYTE, rank, tag, messages.comm, SendMode::kStandard}));
    return;
  }
  const InsideLibrary inside;
  check_transfer(real.Isend[1](from, static_cast<int>(bytes), MPI_BYTE, rank, tag, messages.comm, messages.enter(slot)));
}

void receive_of_file(void* context, int slot, int rank, int tag, void* into, int64_t bytes) {
  auto& messages = *static_cast<FileMessages*>(context);
  FileTransfer& transfer = messages.transfers[slot];
  const Route route = route_of_receive(into, bytes, MPI_BYTE, rank, tag, messages.comm);
  transfer.active = true;
  transfer.is_direct = route.communicator != nullptr;
  if (transfer.is_direct) {
    check_transfer(
        start_receive(transfer.request, route, {into, bytes, MPI_BYTE, rank, tag, messages.comm, SendMode::kStandard}));
    return;
  }
  const InsideLibrary inside;
  check_transfer(real.Irecv[1](into, static_cast<int>(bytes), MPI_BYTE, rank, tag, messages.comm, messages.enter(slot)));
}

/// A few at a time: looking at one that is not over makes all of the library's progress.
void look_at_library(FileMessages& messages) {
  constexpr int kAtOnce = 16;
  const InsideLibrary inside;
  for (int left = std::min(messages.in_library, kAtOnce); left > 0; --left) {
    messages.looks_at = messages.looks_at < messages.in_library ? messages.looks_at : 0;
    const int at = messages.looks_at++;
    int done = 0;
    int bytes = 0;
    MPI_Status status;
    // By itself: MPICH raises errors of MPI_Testsome on MPI_COMM_WORLD, whose handler is the program's.
    check_transfer(real.Test[1](&messages.requests[at], &done, &status));
    if (done == 0) {
      continue;
    }
    real.Get_count[1](&status, MPI_BYTE, &bytes);
    FileTransfer& transfer = messages.transfers[messages.slots[at]];
    transfer.bytes = bytes;
    transfer.active = false;
    const int last = --messages.in_library;
    messages.requests[at] = messages.requests[last];
    messages.slots[at] = messages.slots[last];
    messages.looks_at = at;
  }
}

bool test_file_transfer(void* context, int slot, int64_t* bytes) {
  FileTransfer& transfer = static_cast<FileMessages*>(context)->transfers[slot];
  if (transfer.active && transfer.is_direct && try_to_complete(transfer.request)) {
    transfer.bytes =
        transfer.request.kind == RequestKind::kReceive ? static_cast<int64_t>(transfer.request.receiving.bytes) : 0;
    check_transfer(conclude(transfer.request, MPI_STATUS_IGNORE));
    transfer.active = false;
  }
  if (bytes != nullptr) {
    *bytes = transfer.bytes;
  }
  return !transfer.active;
}

void wait_for_call(collio::Call* call, FileMessages& messages) {
  wait_in_file_call(
      [&] {
        do {
          look_at_library(messages);
        } while (core->io.step(call));
        return core->io.is_done(call);
      },
      [&] { return messages.in_library > 0; });
}

void share(const FileMessages& messages, const void* mine, void* all, int bytes) {
  if (communicator_of(messages.comm)->direct) {
    check_transfer(serve_Allgather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, messages.comm, 1));
    return;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  const InsideLibrary inside;
  check_transfer(real.Iallgather[1](mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, messages.comm, &request));
  int done = 0;
  wait_in_file_call(
      [&] {
        check_transfer(real.Test[1](&request, &done, MPI_STATUS_IGNORE));
        return done != 0;
      },
      [] { return true; });
}

void share_largest(const FileMessages& messages, const int64_t* mine, int64_t* largest, int count) {
  if (communicator_of(messages.comm)->direct) {
    check_transfer(serve_Allreduce(mine, largest, count, MPI_INT64_T, MPI_MAX, messages.comm, 1));
    return;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  const InsideLibrary inside;
  check_transfer(real.Iallreduce[1](mine, largest, count, MPI_INT64_T, MPI_MAX, messages.comm, &request));
  int done = 0;
  wait_in_file_call(
      [&] {
        check_transfer(real.Test[1](&request, &done, MPI_STATUS_IGNORE));
        return done != 0;
      },
      [] { return true; });
}

}  // namespace headroom::mpi
