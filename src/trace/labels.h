// Faults by the code that allocated the memory: the heap labels blocks with the number of an allocation site while a trace is
// taken, the pager counts faults from storage, and the time that threads waited, by it.
#pragma once

#include <atomic>
#include <cstdint>

namespace headroom::trace {

inline constexpr uint16_t kMostLabels = 1024;

struct LabelCounts {
  std::atomic<uint64_t> faults;
  std::atomic<uint64_t> waited_ns;
};

/// Reserves the table for `blocks` blocks; false if there are no addresses. Without it all blocks have label 0.
bool open_labels(uint64_t blocks);
/// The blocks belong to the allocation of this site from now on. Thread-safe.
void label_blocks(uint64_t first, uint64_t count, uint16_t label);
/// Counts a fault, or the time that was waited for one.
void count_for_label(uint64_t block, uint64_t faults, uint64_t waited_ns);
const LabelCounts& label_counts(uint16_t label);

}  // namespace headroom::trace
