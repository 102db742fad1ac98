// See requests.h.
#include "pager/requests.h"

#include <sys/eventfd.h>

#include "base/system_calls.h"

namespace headroom::pager {
namespace {

using base::system_call;

constexpr int kSlots = 256;
std::atomic<Request*> slots[kSlots];
int event_descriptor = -1;

}  // namespace

base::Result<int> open_request_descriptor() {
  event_descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event_descriptor < 0) {
    return base::Status::kNoMemory;
  }
  return event_descriptor;
}

void nudge() {
  const uint64_t one = 1;
  (void)system_call(SYS_write, event_descriptor, &one, sizeof one);
}

void post(Request& request) {
  request.done.store(0, std::memory_order_relaxed);
  request.started_ns = base::monotonic_ns();
  for (int index = 0;; index = (index + 1) % kSlots) {
    Request* empty = nullptr;
    // release: pairs with the acquire in next_request(); the request is complete before the pager sees it.
    if (slots[index].compare_exchange_strong(empty, &request, std::memory_order_release, std::memory_order_relaxed)) {
      break;
    }
    if (index == kSlots - 1) {
      (void)system_call(SYS_sched_yield);
    }
  }
  nudge();
}

void perform(Request& request) {
  post(request);
  // acquire: pairs with the release in finish(); what the pager did is visible when the asker goes on.
  while (request.done.load(std::memory_order_acquire) == 0) {
    base::futex_wait(&request.done, 0, -1, false);
  }
}

void begin_requests() {
  uint64_t ignored = 0;
  (void)system_call(SYS_read, event_descriptor, &ignored, sizeof ignored);
}

Request* next_request() {
  static int last = 0;  // goes on behind it, so that each has its turn
  for (int each = 0; each < kSlots; ++each) {
    last = (last + 1) % kSlots;
    if (slots[last].load(std::memory_order_relaxed) != nullptr) {
      return slots[last].exchange(nullptr, std::memory_order_acquire);
    }
  }
  return nullptr;
}

void finish(Request& request, base::Status status) {
  request.status = status;
  const void* word = &request.done;
  request.done.store(1, std::memory_order_release);
  // The asker's stack frame may be gone by now; waking an address that nobody waits on is harmless.
  base::futex_wake(word, 1, false);
}

}  // namespace headroom::pager
