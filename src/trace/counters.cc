// The private array that is counted in before the node session is joined; see counters.h.
#include "trace/counters.h"

namespace headroom::trace {
namespace {
std::atomic<uint64_t> private_array[kCounterCount];
}  // namespace

std::atomic<std::atomic<uint64_t>*> counter_array{private_array};

void move_counters(std::atomic<uint64_t>* array) {
  for (int index = 0; index < kCounterCount; ++index) {
    array[index].fetch_add(private_array[index].exchange(0, std::memory_order_relaxed), std::memory_order_relaxed);
  }
  counter_array.store(array, std::memory_order_release);
}

void stop_counting() { counter_array.store(private_array, std::memory_order_release); }

}  // namespace headroom::trace
