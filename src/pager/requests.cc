// See requests.h.
#include "pager/requests.h"

#include <sys/eventfd.h>

#include <atomic>

#include "base/own_descriptors.h"
#include "base/system_calls.h"

namespace headroom::pager {
namespace {

using base::Status;
using base::system_call;

constexpr uint64_t kAbandonedNs = 1'000'000'000;  // so long a thread that left a request by a jump may still read its answer

// The phase of a slot and, above it, how often it was claimed.
enum Phase : uint32_t { kFree, kFilling, kPosted, kTaken, kDone };
constexpr uint32_t kPhaseBits = 3;

constexpr Phase phase_of(uint32_t word) { return static_cast<Phase>(word & ((1 << kPhaseBits) - 1)); }
constexpr uint32_t claims_of(uint32_t word) { return word >> kPhaseBits; }
constexpr uint32_t word_of(uint32_t claims, Phase phase) { return claims << kPhaseBits | phase; }

Request slots[kMostRequests];                // the phase of each says whose it is
std::atomic<uint32_t> words[kMostRequests];  // futexes
std::atomic<int> reached{0};                 // no slot from here on was ever used
int event_descriptor = -1;

/// FREE, or left DONE by a thread that has jumped, to FILLING.
bool claim(int index, bool abandoned) {
  uint32_t word = words[index].load(std::memory_order_acquire);
  if (phase_of(word) != (abandoned ? kDone : kFree) ||
      (abandoned && base::monotonic_ns() - slots[index].ended_ns < kAbandonedNs)) {
    return false;
  }
  // acquire: pairs with the release of the thread that had it before, which reads it no longer.
  return words[index].compare_exchange_strong(word, word_of(claims_of(word) + 1, kFilling), std::memory_order_acquire,
                                              std::memory_order_relaxed);
}

int claim_some() {
  for (;;) {
    for (const bool abandoned : {false, true}) {
      for (int index = 0; index < kMostRequests; ++index) {
        if (claim(index, abandoned)) {
          return index;
        }
      }
    }
    (void)system_call(SYS_sched_yield);
  }
}

}  // namespace

base::Result<int> open_request_descriptor() {
  event_descriptor = base::own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (event_descriptor < 0) {
    return base::Status::kNoMemory;
  }
  return event_descriptor;
}

void nudge() {
  const uint64_t one = 1;
  (void)system_call(SYS_write, event_descriptor, &one, sizeof one);
}

void perform(Request& request) {
  const int index = claim_some();
  std::atomic<uint32_t>& word = words[index];
  const uint32_t claims = claims_of(word.load(std::memory_order_relaxed));
  int before = reached.load(std::memory_order_relaxed);
  while (before <= index && !reached.compare_exchange_weak(before, index + 1, std::memory_order_relaxed)) {
  }
  request.started_ns = base::monotonic_ns();
  slots[index] = request;
  slots[index].ended_ns = 0;
  // release: pairs with the acquire in next_request(); the request is complete before the pager sees it.
  word.store(word_of(claims, kPosted), std::memory_order_release);
  nudge();
  uint32_t now = 0;
  // acquire: pairs with the release in finish(); the asker sees all that the pager did when it goes on.
  while (now = word.load(std::memory_order_acquire), claims_of(now) == claims && phase_of(now) != kDone) {
    base::futex_wait(&word, now, -1, false);
  }
  const Status status = slots[index].status;
  now = word_of(claims, kDone);
  const bool ours =
      word.compare_exchange_strong(now, word_of(claims, kFree), std::memory_order_release, std::memory_order_relaxed);
  // Taken from us: the answer is not known. An access is repeated; the others ask again or do without.
  request.status = ours ? status : request.kind == RequestKind::kFault ? Status::kOk : Status::kNoMemory;
}

void begin_requests() {
  uint64_t ignored = 0;
  (void)system_call(SYS_read, event_descriptor, &ignored, sizeof ignored);
}

Request* next_request() {
  static int last = 0;  // goes on behind it, so that each has its turn
  const int used = reached.load(std::memory_order_relaxed);
  for (int each = 0; each < used; ++each) {
    last = (last + 1) % used;
    const uint32_t word = words[last].load(std::memory_order_acquire);
    if (phase_of(word) == kPosted) {
      words[last].store(word_of(claims_of(word), kTaken), std::memory_order_relaxed);
      return &slots[last];
    }
  }
  return nullptr;
}

void finish(Request& request, Status status) {
  request.status = status;
  request.ended_ns = base::monotonic_ns();
  const uint64_t index = (reinterpret_cast<uintptr_t>(&request) - reinterpret_cast<uintptr_t>(slots)) / sizeof(Request);
  if (index >= kMostRequests) {
    return;  // in none of the slots: the pager's own
  }
  std::atomic<uint32_t>& word = words[index];
  word.store(word_of(claims_of(word.load(std::memory_order_relaxed)), kDone), std::memory_order_release);
  base::futex_wake(&word, 1, false);  // the thread that has the slot by then looks, and sleeps on
}

}  // namespace headroom::pager
