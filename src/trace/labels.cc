// See labels.h.
#include "trace/labels.h"

#include "base/system_calls.h"

namespace headroom::trace {
namespace {

std::atomic<uint16_t>* label_of_block = nullptr;
LabelCounts counts[kMostLabels];

}  // namespace

bool open_labels(uint64_t blocks) {
  label_of_block = static_cast<std::atomic<uint16_t>*>(base::reserve_memory(blocks * sizeof(std::atomic<uint16_t>)));
  return label_of_block != nullptr;
}

void label_blocks(uint64_t first, uint64_t count, uint16_t label) {
  for (uint64_t block = first; label_of_block != nullptr && block < first + count; ++block) {
    label_of_block[block].store(label, std::memory_order_relaxed);
  }
}

void count_for_label(uint64_t block, uint64_t faults, uint64_t waited_ns) {
  if (label_of_block == nullptr) {
    return;
  }
  LabelCounts& of_label = counts[label_of_block[block].load(std::memory_order_relaxed) % kMostLabels];
  of_label.faults.fetch_add(faults, std::memory_order_relaxed);
  of_label.waited_ns.fetch_add(waited_ns, std::memory_order_relaxed);
}

const LabelCounts& label_counts(uint16_t label) { return counts[label % kMostLabels]; }

}  // namespace headroom::trace
