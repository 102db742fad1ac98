// See peer_hold.h.
#include "direct/peer_hold.h"

#include "direct/peer_memory.h"
#include "pager/pager.h"

namespace headroom::direct {
namespace {

using arena::BlockWord;

bool is_watched(const node::Session& session, int member) {
  return session.ledger->members[member].pager.arms.load(std::memory_order_seq_cst) != 0;
}

uint64_t amount_of(const PeerRange& range) { return arena::kHold + (range.write ? arena::kWriteHold : 0); }

/// A block that is read by another mapping need not be mapped in the peer; one that is written must be such that the peer's
/// pager would not have noticed the peer writing it either. `own`: this process's part is used where the program sees it.
bool is_there(uint64_t word, bool write, bool own) {
  const uint64_t wanted = (write || own ? arena::kMapped : 0) | (write ? arena::kWritable : 0);
  return arena::state_of(word) == arena::kResident && (word & (wanted | arena::kShared)) == wanted;
}

struct Blocks {
  BlockWord* words;
  uint64_t first;
  uint64_t count;
};

Blocks blocks_of(const node::Session& session, const PeerRange& range) {
  const uint64_t first = arena::block_of(range.offset);
  return {open_peer_blocks(session, range.member), first, arena::block_of(range.offset + range.bytes - 1) - first + 1};
}

}  // namespace

uint64_t largest_peer_hold(const node::Session& session, int member) {
  return pager::is_armed() || is_watched(session, member) ? pager::largest_hold() : UINT64_MAX;
}

namespace {

/// Whether the blocks that were held are there. If they are not watched yet nothing is taken away, and when that begins the
/// holds are seen (pager/arming.cc).
bool hold_blocks(const node::Session& session, const PeerRange& range, const Blocks& blocks) {
  const bool own = range.member == session.index;
  bool all_there = true;
  for (uint64_t block = blocks.first; block < blocks.first + blocks.count; ++block) {
    const uint64_t before = blocks.words[block].fetch_add(amount_of(range), std::memory_order_seq_cst);
    all_there = is_there(before, range.write, own) && all_there;
  }
  return all_there || !is_watched(session, range.member);
}

}  // namespace

bool try_peer_hold(const node::Session& session, const PeerRange& range) {
  if (hold_blocks(session, range, blocks_of(session, range))) {
    return true;
  }
  drop_peer_hold(session, range);
  return false;
}

bool take_peer_hold(const node::Session& session, const PeerRange& range, uint64_t ahead) {
  const Blocks blocks = blocks_of(session, range);
  return hold_blocks(session, range, blocks) ||
         pager::ask_peer_to_bring(range.member, blocks.first, blocks.count, ahead / arena::kBlockBytes, range.write);
}

void drop_peer_hold(const node::Session& session, const PeerRange& range) {
  const Blocks blocks = blocks_of(session, range);
  for (uint64_t block = blocks.first; block < blocks.first + blocks.count; ++block) {
    // The writes under the hold come before the peer's pager may write the block out, and before this process reads anything
    // else (MPI_Win_flush).
    blocks.words[block].fetch_sub(amount_of(range), std::memory_order_seq_cst);
  }
}

}  // namespace headroom::direct
