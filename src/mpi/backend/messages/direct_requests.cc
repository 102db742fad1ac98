// See direct_requests.h.
#include "mpi/backend/messages/direct_requests.h"

#include <atomic>
#include <cstdint>
#include <new>

#include "base/system_calls.h"
#include "base/threads_lock.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/objects/error_handlers.h"
#include "mpi/services.h"

namespace headroom::mpi {
namespace {

void enter_handle(DirectRequest* request) {
  uint64_t at = number_of(request->handle) % kHandleEntries;
  while (handle_table[at].handle.load(std::memory_order_relaxed) != MPI_Request{}) {
    at = (at + 1) % kHandleEntries;
  }
  handle_table[at].request = request;
  handle_table[at].handle.store(request->handle, std::memory_order_release);
  ++handle_count;
}

}  // namespace

HandleEntry* handle_table = nullptr;
uint64_t handle_count = 0;
DirectRequest* last_made_request = nullptr;
DirectRequest* free_requests = nullptr;
DirectRequest* freed_requests = nullptr;
std::atomic<uint32_t> freed_count{0};
std::atomic<uint32_t> freed_and_looked_at{0};
base::ThreadsLock request_lock;

uint32_t requests_on[kCacheEntries];

[[gnu::noinline]] bool make_requests() {
  const InsideLibrary inside;
  if (handle_table == nullptr) {
    handle_table = static_cast<HandleEntry*>(base::reserve_memory(kHandleEntries * sizeof(HandleEntry)));
  }
  constexpr int kAtOnce = 32;
  if (handle_table == nullptr || handle_count + kAtOnce > kHandleEntries / 2) {
    return false;
  }
  const HandlersWait handlers;
  auto* fresh = static_cast<DirectRequest*>(base::reserve_memory(kAtOnce * sizeof(DirectRequest)));
  for (int index = 0; fresh != nullptr && index < kAtOnce; ++index) {
    auto* request = new (fresh + index) DirectRequest;
    if (real.Recv_init[1](nullptr, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_SELF, &request->handle) != MPI_SUCCESS) {
      break;
    }
    enter_handle(request);
    request->made_before = last_made_request;
    last_made_request = request;
    request->next = free_requests;
    free_requests = request;
  }
  return free_requests != nullptr;
}

void recycle(DirectRequest* request) {
  const LockAmongThreads lock(request_lock);
  if (request->library != MPI_REQUEST_NULL) {  // a persistent one's
    const InsideLibrary inside;
    real.Request_free[1](&request->library);
  }
  request->active = false;
  request->persistent = false;
  --requests_on[request->counted_at];
  request->next = free_requests;
  free_requests = request;
}

}  // namespace headroom::mpi
