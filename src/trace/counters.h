// Counting. A counter is one relaxed addition to a word in the ledger (so it survives the process); before the process has
// joined the node session it goes to a private array that is copied over at the join. Safe anywhere, also in signal
// handlers. The table is counters.toml.
#pragma once

#include <atomic>
#include <cstdint>

#include "trace/counter_table.h"

namespace headroom::trace {

/// Where this process counts: an array of kCounterCount words.
extern std::atomic<std::atomic<uint64_t>*> counter_array;

inline void count(Counter counter, uint64_t amount = 1) {
  counter_array.load(std::memory_order_acquire)[static_cast<int>(counter)].fetch_add(amount, std::memory_order_relaxed);
}
/// The same for counters that one thread at a time counts: no locked instruction.
inline void count_alone(Counter counter, uint64_t amount = 1) {
  auto& word = counter_array.load(std::memory_order_relaxed)[static_cast<int>(counter)];
  word.store(word.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}
inline void count_down(Counter counter, uint64_t amount) {
  counter_array.load(std::memory_order_acquire)[static_cast<int>(counter)].fetch_sub(amount, std::memory_order_relaxed);
}
/// For counters that say how much there is now; one thread at a time sets one.
inline void set(Counter counter, uint64_t value) {
  counter_array.load(std::memory_order_acquire)[static_cast<int>(counter)].store(value, std::memory_order_relaxed);
}
inline uint64_t counted(Counter counter) {
  return counter_array.load(std::memory_order_acquire)[static_cast<int>(counter)].load(std::memory_order_relaxed);
}
/// Raises a counter that records a maximum.
inline void count_peak(Counter counter, uint64_t value) {
  auto& word = counter_array.load(std::memory_order_acquire)[static_cast<int>(counter)];
  uint64_t seen = word.load(std::memory_order_relaxed);
  while (value > seen && !word.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

/// From now on count in `array` (the member's part of the ledger), starting from what was counted so far.
void move_counters(std::atomic<uint64_t>* array);

/// In a forked child: the ledger is not mapped there, so it counts for itself.
void stop_counting();

}  // namespace headroom::trace
