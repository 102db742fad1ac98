// See waiting_accesses.h. pump() tries all that wait again when something has changed.
#include "pager/waiting_accesses.h"

#include <algorithm>
#include <utility>

#include "pager/fork.h"
#include "pager/random_access.h"
#include "pager/state.h"
#include "trace/counters.h"
#include "trace/labels.h"

namespace headroom::pager {
namespace {

using namespace arena;
using trace::Counter;

constexpr uint64_t kPartForPages = 4;            // of memory is cleared when a sparse reader is found
constexpr int64_t kMostLacking = 16;             // blocks that room is made for at a time, however many wait for it
constexpr uint64_t kPartThatLeaves = 4;          // of the blocks that can leave, so that those just served stay
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

bool has_rights(uint64_t word, bool write) {
  const uint64_t wanted = kMapped | (write ? kWritable : 0);
  return (word & wanted) == wanted;
}

bool served_now(const WaitingAccess& access) {
  const uint64_t word = word_of(access.block).load(std::memory_order_relaxed);
  return state_of(word) != kReading && serve(access.block, access.write, access.page);
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

bool bring_now(uint64_t first, uint64_t count, bool write) {
  bool all = true;
  for (uint64_t block = first; block < first + count; ++block) {
    if (!stop_sharing(block)) {
      all = false;
      continue;
    }
    const uint64_t word = word_of(block).load(std::memory_order_relaxed);
    const bool here = (state_of(word) == kResident || state_of(word) == kWriting) && has_rights(word, write);
    if (!here && (state_of(word) == kReading || !serve(block, write))) {
      all = false;
    }
  }
  return all;
}

/// Tries everything that waits, the oldest first, so that it gets what room there is.
void serve_in_line() {
  state.lacking_blocks = 0;
  state.oldest_lacks_since_ns = 0;
  state.waiting.find([](WaitingAccess& access) {
    if (!access.is_fault) {
      if (bring_now(access.block, access.count, access.write)) {
        Request& request = *access.request;
        state.waiting.remove(access);
        finish(request);
      }
    } else if (!(access.from_storage && state.turn_is_cut && must_wait_for_turn(access.thread, false)) && served_now(access)) {
      end_fault(access);
    }
    if (state.oldest_lacks_since_ns == 0 && state.lacking_blocks > 0) {
      state.oldest_lacks_since_ns = access.started_ns;
    }
    return false;
  });
  if (state.lacking_blocks > 1) {  // each has seen to room for one, the same one
    // Not so much that blocks that were just served leave before their use.
    const auto part = static_cast<int64_t>(state.resident.can_leave() / kPartThatLeaves);
    const int64_t most = std::min(part, kMostLacking);
    const int64_t blocks = std::min<int64_t>(state.lacking_blocks, most);
    make_room(blocks * static_cast<int64_t>(kBlockBytes));
  }
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

bool older_ones_lack_room() {
  return state.oldest_lacks_since_ns != 0 && base::monotonic_ns() - state.oldest_lacks_since_ns < kPatienceNs;
}

bool has_waiting_writer(uint64_t block) {
  return state.waiting.find(
      [block](const WaitingAccess& access) { return access.is_fault && access.block == block && access.write; });
}

bool serve_waiting(uint64_t first, uint64_t count, uint32_t page) {
  bool some = false;
  state.waiting.find([&](WaitingAccess& access) {
    const bool meant = access.is_fault && access.block >= first && access.block < first + count &&
                       (page == kWholeBlock || page == access.page);
    if (meant && served_now(access)) {
      end_fault(access);
      some = true;
    }
    return false;
  });
  return some;
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

void bring(Request& request) {
  if (bring_now(request.block, request.count, request.write)) {
    finish(request);
    return;
  }
  if (!state.waiting.add({.request = &request,
                          .block = request.block,
                          .count = request.count,
                          .started_ns = request.started_ns,
                          .page = kWholeBlock,
                          .write = request.write})) {
    finish(request, base::Status::kNoMemory);  // the asker tries again
  }
}

void pump() {
  if (take_wish_for_room()) {
    (void)evict(static_cast<int64_t>(share_of_memory() / kPartForPages), Urgency::kNobodyWaits);
  }
  look_at_turn();
  serve_in_line();
  if (state.armed && state.session->ledger->free_bytes.load(std::memory_order_relaxed) < 0) {
    make_room(0);
  }
  if (state.armed && !state.turn_is_cut) {
    read_streams_ahead();
  }
  forget_old_question();
}

}  // namespace headroom::pager
