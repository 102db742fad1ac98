// The requests of members to each other's pagers: a process that reads or writes a peer's memory by its own mapping of it
// (one-sided communication, direct/peer_hold.h) holds the peer's blocks by the peer's block table, which is shared. Only the
// peer's pager can bring those that are not there. A member asks for one range at a time, in its own entry of the ledger, and
// holds nothing else of anybody's meanwhile, so that no ring of ranks waits for each other's memory:
//
//   FREE ─ the asker fills the entry in ─► ASKED ─ rings; the peer's pager ─► TAKEN ─ brings the blocks ─► DONE ─ the asker ─►
//   FREE
#include "pager/peer_requests.h"

#include "base/system_calls.h"
#include "pager/requests.h"
#include "pager/serving.h"
#include "pager/state.h"
#include "pager/streams.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

enum PeerRequestState : uint32_t { kFree, kAsked, kTaken, kDone };

base::FutexLock asking;

// By the rank that asks. The pager's thread alone.
Request requests[node::kMaxMembers];
int32_t under_way[node::kMaxMembers];  // the asker's pid, or 0
int under_way_count = 0;

}  // namespace

bool ask_peer_to_bring(int member, uint64_t first, uint64_t count, uint64_t ahead, bool write) {
  constexpr int64_t kLookNs = 10'000'000;
  const base::LockHolder lock(asking);
  node::Member& self = *session().self;
  const node::Member& peer = session().ledger->members[member];
  self.bring.from.store(member, std::memory_order_relaxed);
  self.bring.first.store(first, std::memory_order_relaxed);
  self.bring.count.store(count, std::memory_order_relaxed);
  self.bring.ahead.store(ahead, std::memory_order_relaxed);
  self.bring.write.store(write ? 1 : 0, std::memory_order_relaxed);
  self.bring.state.store(kAsked, std::memory_order_release);
  trace::count(trace::Counter::kPeersAskedForBlocks);
  const uint64_t started = base::monotonic_ns();
  node::ring(session(), member);
  for (uint32_t now = kAsked; now != kDone; now = self.bring.state.load(std::memory_order_acquire)) {
    base::futex_wait(&self.bring.state, now, kLookNs, true);
    if (node::state_of(peer) != node::MemberState::kAlive && self.bring.state.load(std::memory_order_acquire) != kDone) {
      self.bring.state.store(kFree,
                             std::memory_order_relaxed);  // else the process that gets its place would take it for its own
      return false;
    }
  }
  self.bring.state.store(kFree, std::memory_order_relaxed);
  trace::count(trace::Counter::kStorageWaitNs, base::monotonic_ns() - started);
  return true;
}

void take_requests_of_peers() {
  node::Ledger& ledger = *state.session->ledger;
  for (int next = 0; node::Member & asker : ledger.used_members()) {
    const int index = next++;
    if (asker.bring.state.load(std::memory_order_acquire) != kAsked ||
        asker.bring.from.load(std::memory_order_relaxed) != state.session->index || under_way[index] != 0) {
      continue;
    }
    asker.bring.state.store(kTaken, std::memory_order_relaxed);
    Request& request = requests[index];
    request.kind = RequestKind::kBring;
    request.block = asker.bring.first.load(std::memory_order_relaxed);
    request.count = asker.bring.count.load(std::memory_order_relaxed);
    request.write = asker.bring.write.load(std::memory_order_relaxed) != 0;
    request.started_ns = base::monotonic_ns();
    request.ended_ns = 0;
    under_way[index] = asker.pid.load(std::memory_order_relaxed);
    ++under_way_count;
    if (const uint64_t ahead = asker.bring.ahead.load(std::memory_order_relaxed); ahead > 0) {
      read_announced(request.block + request.count, ahead);
    }
    bring(request);
  }
}

void answer_peers() {
  for (int index = 0; under_way_count > 0 && index < node::kMaxMembers; ++index) {
    if (under_way[index] == 0 || requests[index].ended_ns == 0) {
      continue;
    }
    if (requests[index].status != base::Status::kOk) {  // too many at once
      requests[index].ended_ns = 0;
      bring(requests[index]);
      continue;
    }
    node::Member& asker = state.session->ledger->members[index];
    const bool is_same = asker.pid.load(std::memory_order_relaxed) == under_way[index];
    under_way[index] = 0;
    --under_way_count;
    if (!is_same) {
      take_requests_of_peers();  // it has died, and another process has its place, which may have asked meanwhile
      continue;
    }
    std::atomic<uint32_t>& word = asker.bring.state;
    // release: the asker sees the blocks that were brought.
    word.store(kDone, std::memory_order_release);
    base::futex_wake(&word, 1, true);
  }
}

}  // namespace headroom::pager
