// See waiting_accesses.h.
#include "pager/waiting_accesses.h"

#include <utility>

#include "pager/requests.h"
#include "pager/state.h"
#include "trace/counters.h"
#include "trace/labels.h"

namespace headroom::pager {
namespace {

using namespace arena;
using trace::Counter;

constexpr uint64_t kPatienceNs = 1'000'000'000;  // so long newcomers stand back behind those that lack room
constexpr int kPool = kMostRequests;
WaitingAccess pool[kPool];
int used_of_pool = 0;  // those behind were never used
WaitingAccess* free_of_pool = nullptr;

WaitingAccess* take_from_pool() {
  if (free_of_pool != nullptr) {
    return std::exchange(free_of_pool, free_of_pool->newer);
  }
  return used_of_pool < kPool ? &pool[used_of_pool++] : nullptr;
}

}  // namespace

bool WaitingAccesses::add(const WaitingAccess& access) {
  const bool stopped = access.request == nullptr;
  if (stopped && find([&access](WaitingAccess& known) {
        if (known.request != nullptr || known.thread != access.thread) {
          return false;
        }
        known.block = access.block;
        known.page = access.page;
        known.write = access.write;
        known.from_storage = access.from_storage;
        return true;
      })) {
    return true;
  }
  WaitingAccess* place = take_from_pool();
  if (place == nullptr) {
    return false;
  }
  *place = access;
  place->older = newest_;
  place->newer = nullptr;
  (newest_ != nullptr ? newest_->newer : oldest_) = place;
  newest_ = place;
  count_.store(count() + 1, std::memory_order_relaxed);
  return true;
}

void WaitingAccesses::remove(WaitingAccess& access) {
  for (Visitor* visitor = visitors_; visitor != nullptr; visitor = visitor->outer) {
    visitor->next = visitor->next == &access ? access.newer : visitor->next;
  }
  (access.older != nullptr ? access.older->newer : oldest_) = access.newer;
  (access.newer != nullptr ? access.newer->older : newest_) = access.older;
  count_.store(count() - 1, std::memory_order_relaxed);
  access.newer = free_of_pool;
  free_of_pool = &access;
}

bool has_rights(uint64_t word, bool write) {
  const uint64_t wanted = kMapped | (write ? kWritable : 0);
  return (word & wanted) == wanted;
}

void end_fault(WaitingAccess& access) {
  const uint64_t now = base::monotonic_ns();
  const uint64_t waited_ns = now - access.started_ns;
  trace::count(Counter::kStorageWaitNs, waited_ns);
  trace::count_for_label(access.block, 0, waited_ns);
  Request* request = access.request;
  state.waiting.remove(access);
  if (request != nullptr) {
    finish(*request);
  }
}

bool older_ones_lack_room() {
  return state.oldest_lacks_since_ns != 0 && base::monotonic_ns() - state.oldest_lacks_since_ns < kPatienceNs;
}

bool has_waiting_writer(uint64_t block) {
  return state.waiting.find(
      [block](const WaitingAccess& access) { return access.is_fault && access.block == block && access.write; });
}

void end_satisfied(uint64_t first, uint64_t count) {
  state.waiting.find([=](WaitingAccess& access) {
    if (access.is_fault && access.block >= first && access.block < first + count &&
        has_rights(word_of(access.block).load(std::memory_order_relaxed), access.write)) {
      end_fault(access);
    }
    return false;
  });
}

}  // namespace headroom::pager
