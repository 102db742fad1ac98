// Requests of direct messages. See request_contents.h for what they tell, routes.h for the calls that become direct, starting.h
// and ending.h for how requests begin and end, waiting.h for how they are waited for.
//
// A request's handle is that of an inactive persistent request of the library's own (a receive from MPI_PROC_NULL): unique,
// valid for Fortran's wrappers and for tools, and used again and again, so that a message costs nothing there. A table that
// only grows says which request of ours a handle stands for.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/threads_lock.h"
#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/objects/datatypes.h"
#include "mpi/backend/objects/error_handlers.h"

namespace headroom::mpi {

struct StartedCollective;

enum class RequestKind : uint8_t {
  kSend,
  kReceive,
  kLibrary,  // the library's, as a part of a call that is direct otherwise
  kCollective,
};

enum class SendMode : uint8_t { kStandard, kSynchronous, kReady, kBuffered };

/// The arguments of the call that a request stands for; a persistent one is started with them.
struct Arguments {
  void* buffer;
  MPI_Count count;
  MPI_Datatype datatype;
  int peer;
  int tag;
  MPI_Comm comm;
  SendMode mode;
};

struct DirectRequest {
  MPI_Request handle = MPI_REQUEST_NULL;
  RequestKind kind = RequestKind::kSend;
  bool active = false;
  bool persistent = false;
  bool freed = false;  // the program has no handle any more
  bool cancelled = false;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm stand_in = MPI_COMM_NULL;   // for errors, once the program has freed `comm` (messages/freed_communicators.h)
  direct::Sending* sending = nullptr;  // nullptr: complete
  direct::Receiving receiving;
  direct::Layout* layout = nullptr;  // kept while the receive is under way
  char* copied = nullptr;            // what is sent, where the program may write to its own (buffered, replaced)
  // Where the library has to pack or unpack:
  char* bounce = nullptr;
  size_t bounce_bytes = 0;
  MPI_Datatype unpacked_as = MPI_DATATYPE_NULL;  // a copy: the program may have freed its own
  Arguments arguments = {};
  StartedCollective* collective = nullptr;  // (collectives/nonblocking_collectives.h)
  // The library's share of it (library_parts.h): a receive that may be from other nodes too, or a part.
  MPI_Request library = MPI_REQUEST_NULL;
  bool in_library = false;    // its request is active
  bool from_library = false;  // it is complete, and by the library
  bool has_token = false;     // the library's request was ended by this process itself, for a message of a node-mate
  uint64_t token_for = 0;     // which message
  int own_rank = 0;
  DirectRequest* next_on_both_ways = nullptr;
  DirectRequest** link_on_both_ways = nullptr;  // where it is entered, if it is
  LibraryError library_error = {};
  MPI_Status library_status = {};
  // A persistent request's; they outlive the program's handles:
  Communicator* communicator = nullptr;
  Datatype datatype = {};
  uint64_t tests = 0;             // that found it pending
  bool seen = false;              // complete, by a call that did not end it (request_status.cc)
  DirectRequest* also = nullptr;  // a second part that ends with this one (MPI_Isendrecv)
  DirectRequest* next = nullptr;
  DirectRequest* made_before = nullptr;
  uint8_t counted_at = 0;  // in requests_on
};

/// The communicator whose error handler is called for it.
inline MPI_Comm raises_on(const DirectRequest& request) {
  return __builtin_expect(request.stand_in != MPI_COMM_NULL, 0) ? request.stand_in : request.comm;
}

// Handles of ours: open addressing; entries are never taken out.
struct HandleEntry {
  std::atomic<MPI_Request> handle;
  DirectRequest* request;
};

constexpr uint64_t kHandleEntries = 1 << 21;

extern HandleEntry* handle_table;
extern uint64_t handle_count;
extern DirectRequest* last_made_request;
extern DirectRequest* free_requests;               // with a handle
extern DirectRequest* freed_requests;              // not complete, and nobody will ask
extern std::atomic<uint32_t> freed_count;          // of these
extern std::atomic<uint32_t> freed_and_looked_at;  // and how many there were when they were last looked at
extern base::ThreadsLock request_lock;

// How many requests are in use on communicators with handles that have this number: mostly none are when one is freed, and then
// nobody looks through all of them (messages/freed_communicators.h).
extern uint32_t requests_on[kCacheEntries];

static_assert(kCacheEntries - 1 <= UINT8_MAX);

/// The request of ours that the handle stands for; nullptr: it is the library's.
inline DirectRequest* direct_request_of(MPI_Request handle) {
  if (handle_table == nullptr || handle == MPI_REQUEST_NULL) {
    return nullptr;
  }
  for (uint64_t at = number_of(handle) % kHandleEntries;; at = (at + 1) % kHandleEntries) {
    const MPI_Request there = handle_table[at].handle.load(std::memory_order_acquire);
    if (there == handle) {
      return handle_table[at].request;
    }
    if (there == MPI_Request{}) {
      return nullptr;
    }
  }
}

/// Makes some requests with handles; false if there are far too many, or no memory.
[[gnu::noinline]] bool make_requests();

/// A request with a handle, for a call on `comm`; nullptr if there are far too many.
inline DirectRequest* take_request(MPI_Comm comm) {
  const LockAmongThreads lock(request_lock);
  if (free_requests == nullptr && !make_requests()) {
    return nullptr;
  }
  DirectRequest* request = free_requests;
  free_requests = request->next;
  request->next = nullptr;
  request->counted_at = static_cast<uint8_t>(number_of(comm) % kCacheEntries);
  ++requests_on[request->counted_at];
  request->freed = false;
  request->stand_in = MPI_COMM_NULL;
  request->persistent = false;
  request->cancelled = false;
  request->receiving.cancelled = false;
  request->tests = 0;
  request->seen = false;
  request->also = nullptr;
  return request;
}

/// Gives back a request that is over; its handle is used again.
void recycle(DirectRequest* request);

}  // namespace headroom::mpi
