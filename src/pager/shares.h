// How much of the node's budget this rank, or another one, is entitled to; see room.cc, which has the ranks give way.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

#include "node/ledger.h"
#include "pager/state.h"

namespace headroom::pager {

/// A moment's division of the budget.
struct Shares {
  int64_t computing;  // number of members that compute
  int64_t alive;
  int64_t budget;  // for blocks
  int64_t turns;   // how many compute at one time, or have the right to
  [[nodiscard]] int64_t of_those_who_want_all() const {
    return (budget - (alive - computing) * kWaitingFloorBytes) / computing;
  }
  /// What a rank that computes has beyond its share.
  [[nodiscard]] int64_t to_read_ahead() const;
  [[nodiscard]] int64_t fair() const { return (budget - turns * to_read_ahead()) / alive; }
};
Shares count_shares(const node::Ledger& ledger);

bool is_computing(const node::Member& member);
/// Whether that rank's blocks of one turn do not fit its share.
bool wants_all(const node::Member& member);
/// The blocks that this rank uses in a turn do not fit its share: it may have more, at the expense of ranks that wait.
void start_wanting_all();
/// How many bytes of blocks one rank can have if all others wait.
int64_t memory_for_one();
/// How much memory this process may expect to have for blocks while it computes, in bytes.
uint64_t share_of_memory();

}  // namespace headroom::pager
