// See shares.h.
#include "pager/shares.h"

#include <algorithm>

#include "pager/state.h"
#include "trace/counters.h"

namespace headroom::pager {

using node::Member;
using trace::Counter;

namespace {

constexpr int64_t kReadAheadBytes = 8 << 20;  // the largest window: beyond, a disk reads no faster
constexpr int64_t kReadAheadPart = 8;         // of a rank's share, so that reading ahead does not drive out what is used

}  // namespace

bool is_computing(const Member& member) {
  return member.turns.run_state.load(std::memory_order_relaxed) == static_cast<uint32_t>(node::RunState::kRunning);
}

bool wants_all(const Member& member) { return member.turns.wants_all.load(std::memory_order_relaxed) != 0; }

int64_t Shares::to_read_ahead() const {
  const int64_t part = budget / turns / kReadAheadPart;
  return std::min(part, kReadAheadBytes);
}

Shares count_shares(const node::Ledger& ledger) {
  Shares shares = {0, 0, ledger.budget, ledger.slots()};
  for (const Member& member : ledger.used_members()) {
    if (is_alive(member)) {
      ++shares.alive;
      shares.budget -= bytes_besides_blocks(member);
      shares.computing += is_computing(member) ? 1 : 0;
    }
  }
  shares.alive = shares.alive > 0 ? shares.alive : 1;
  shares.computing = shares.computing > 0 ? shares.computing : 1;
  shares.turns = std::max(shares.turns, shares.computing);
  shares.turns = std::min(shares.turns, shares.alive);
  return shares;
}

void start_wanting_all() {
  if (!wants_all(*state.session->self)) {
    state.session->self->turns.wants_all.store(1, std::memory_order_relaxed);
    trace::count(Counter::kWantsAll);
  }
}

int64_t memory_for_one() {
  const Shares shares = count_shares(*state.session->ledger);
  return shares.budget - (shares.alive - 1) * kWaitingFloorBytes;
}

uint64_t share_of_memory() {
  const Shares shares = count_shares(*state.session->ledger);
  const int64_t share =
      wants_all(*state.session->self) ? shares.budget / shares.computing : shares.fair() + shares.to_read_ahead();
  return share > 0 ? static_cast<uint64_t>(share) : 0;
}

}  // namespace headroom::pager
