// Messages of collective calls on files. See collio/messages.h.
//
// They go as the program's do: directly between ranks of a node, by the library to others, on a communicator of the file's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "base/system_calls.h"
#include "collio/functions.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/messages/direct_requests.h"
#include "mpi/backend/messages/waiting.h"

namespace headroom::mpi {

struct FileTransfer {
  bool active;
  bool is_direct;
  DirectRequest request;
  int64_t bytes;  // received
};

/// The transfers of a file's call, by slot.
struct FileMessages {
  MPI_Comm comm = MPI_COMM_NULL;
  int room = 0;  // slots
  FileTransfer* transfers = nullptr;
  int in_library = 0;               // of those under way:
  MPI_Request* requests = nullptr;  // their requests
  int* slots = nullptr;             // and slots
  int looks_at = 0;                 // the next of them to be tested

  bool make_room(int needed) {
    if (needed <= room) {
      return true;
    }
    drop();
    const auto count = static_cast<size_t>(needed);
    transfers = static_cast<FileTransfer*>(base::reserve_memory(count * sizeof(FileTransfer)));
    requests = static_cast<MPI_Request*>(base::reserve_memory(count * sizeof(MPI_Request)));
    slots = static_cast<int*>(base::reserve_memory(count * sizeof(int)));
    room = needed;
    if (transfers == nullptr || requests == nullptr || slots == nullptr) {
      return false;
    }
    for (int slot = 0; slot < needed; ++slot) {
      new (&transfers[slot].request) DirectRequest;
    }
    return true;
  }
  void drop() {
    const auto count = static_cast<size_t>(room);
    base::give_back_memory(transfers, count * sizeof(FileTransfer));
    base::give_back_memory(requests, count * sizeof(MPI_Request));
    base::give_back_memory(slots, count * sizeof(int));
    room = 0;
  }
  /// Of a transfer that is the library's; its request is to be filled in.
  MPI_Request* enter(int slot) {
    slots[in_library] = slot;
    return &requests[in_library++];
  }
};

/// The other ranks would wait for what this one cannot send or receive.
void check_transfer(int error);

/// Begins a send, or a receive, in a slot that is free. For collio/messages.h.
void send_of_file(void* context, int slot, int rank, int tag, const void* from, int64_t bytes);
void receive_of_file(void* context, int slot, int rank, int tag, void* into, int64_t bytes);

/// Looks which of the library's are over.
void look_at_library(FileMessages& messages);

/// Whether the transfer that was begun in the slot is over; `bytes`, if not nullptr: how many came.
bool test_file_transfer(void* context, int slot, int64_t* bytes);

/// While one lives, this thread is in a collective call on a file.
class WaitsForFile {
 public:
  WaitsForFile() { waits_for_file = true; }
  ~WaitsForFile() { waits_for_file = false; }
  WaitsForFile(const WaitsForFile&) = delete;
  WaitsForFile& operator=(const WaitsForFile&) = delete;
};

/// Takes the call's steps until this rank's part is over.
void wait_for_call(collio::Call* call, FileMessages& messages);

/// Gives every rank what each says. Where all are on one node the messages are direct.
void share(const FileMessages& messages, const void* mine, void* all, int bytes);

/// The largest of each number, at every rank.
void share_largest(const FileMessages& messages, const int64_t* mine, int64_t* largest, int count);

}  // namespace headroom::mpi
