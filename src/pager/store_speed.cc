// See store_speed.h.
#include "pager/store_speed.h"

#include <algorithm>

#include "pager/state.h"

namespace headroom::pager {
namespace {

constexpr uint32_t kStep = 32;               // of a median, one part in so many a sample
constexpr uint64_t kMostNs = 1'000'000'000;  // a longer one was stopped, not read
constexpr int kUsuallyWorth = 4;             // while little is known
constexpr int kLeastWorth = 2;               // pages: moving a block costs the processors as much as two reads
constexpr int kMostWorth = 16;               // pages: a quarter of a block is likely to be followed by the rest
constexpr uint32_t kEnoughSamples = 16;      // before the median is believed

struct Timed {
  uint64_t tag;
  uint64_t since_ns;  // 0: none is timed
  node::ReadTime* time;
};

Timed timed = {};
int under_way = 0;

node::ReadTime* time_of_size(uint64_t bytes) {
  node::Ledger& ledger = *state.session->ledger;
  return bytes == arena::kPageBytes    ? &ledger.read_page
         : bytes == arena::kBlockBytes ? &ledger.read_block
         : bytes == kStripeBytes       ? &ledger.read_transfer
                                       : nullptr;
}

/// Other ranks may do so at the same moment: then one of the samples is lost.
void add_sample(node::ReadTime& time, uint64_t ns) {
  const auto sample = static_cast<uint32_t>(std::min(ns, kMostNs));
  const uint32_t median = time.median_ns.load(std::memory_order_relaxed);
  const uint32_t known = time.samples.load(std::memory_order_relaxed) + 1;  // the first ones say little each
  const uint32_t part = median / std::min(known, kStep) + 1;
  const uint32_t step = std::min(part, median);  // another rank's first sample may not be counted yet
  const uint32_t moved = median == 0 ? sample : sample > median ? median + step : sample < median ? median - step : median;
  time.median_ns.store(moved, std::memory_order_relaxed);
  time.samples.fetch_add(1, std::memory_order_relaxed);
}

/// 0 if too little is known.
uint64_t known_ns(const node::ReadTime& time) {
  const bool enough = time.samples.load(std::memory_order_relaxed) >= kEnoughSamples;
  return enough ? time.median_ns.load(std::memory_order_relaxed) : 0;
}

}  // namespace

void note_read_begun(uint64_t tag, uint64_t bytes) {
  node::ReadTime* time = under_way++ == 0 ? time_of_size(bytes) : nullptr;
  if (time != nullptr) {
    timed = {tag, base::monotonic_ns(), time};
  }
}

void note_read_ended(uint64_t tag) {
  --under_way;
  if (timed.since_ns != 0 && timed.tag == tag) {
    add_sample(*timed.time, base::monotonic_ns() - timed.since_ns);
    timed = {};
  }
}

void forget_timed_read() { timed = {}; }

int pages_worth_a_block() {
  const uint64_t page = known_ns(state.session->ledger->read_page);
  const uint64_t block = known_ns(state.session->ledger->read_block);
  if (page == 0 || block == 0) {
    return kUsuallyWorth;
  }
  // Not all of the ratio: a block is read beside others, its further pages are likely to be wanted, too, and moving it costs
  // the processors less. (8 ranks on a disk of 100 us a page, 600 us a block: with 6 pages 15 to 20 % slower than with 3 or 4.)
  const auto worth = static_cast<int>(block / (2 * page));
  return worth < kLeastWorth ? kLeastWorth : std::min(worth, kMostWorth);
}

}  // namespace headroom::pager
