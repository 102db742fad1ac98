// Serving the accesses that wait (waiting_accesses.h): one when its block has come, all of them when something has changed.
#include "pager/serving.h"

#include <algorithm>

#include "pager/eviction.h"
#include "pager/fault.h"
#include "pager/fork_copies.h"
#include "pager/random_access.h"
#include "pager/requests.h"
#include "pager/room.h"
#include "pager/shares.h"
#include "pager/single_pages.h"
#include "pager/state.h"
#include "pager/streams.h"
#include "pager/turns.h"
#include "pager/waiting_accesses.h"

namespace headroom::pager {
namespace {

using namespace arena;

constexpr uint64_t kPartForPages = 4;    // of memory is cleared when a sparse reader is found
constexpr int64_t kMostLacking = 16;     // blocks that room is made for at a time, however many wait for it
constexpr uint64_t kPartThatLeaves = 4;  // of the blocks that can leave, so that those just served stay

bool served_now(const WaitingAccess& access) {
  const uint64_t word = word_of(access.block).load(std::memory_order_relaxed);
  return state_of(word) != kReading && serve(access.block, access.write, access.page);
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
  if (state.random_access.take_wish_for_room()) {
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
