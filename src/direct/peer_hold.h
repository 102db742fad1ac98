// Holding blocks of a peer's evictable memory, so that this process can read and write them by its own mapping while the peer
// is busy with anything else: one-sided communication.
//
// A hold is an atomic addition to the block's word, which is in shared memory, as the peer itself does it (pager/hold.cc); the
// peer's pager takes nothing away that is held. Blocks that are not there, or not to be written without notice (they would have
// to be written out again), are brought by the peer's pager, which is asked by way of the ledger.
#pragma once

#include <cstdint>

#include "node/session.h"

namespace headroom::direct {

/// Part of a peer's partition, to be read or written.
struct PeerRange {
  int member;
  uint64_t offset;
  uint64_t bytes;  // not 0
  bool write;
};

/// How much of a peer's memory may be held at a time, in bytes; UINT64_MAX while no memory is watched.
uint64_t largest_peer_hold(const node::Session& session, int member);

/// Holds the blocks of the range until drop_peer_hold(), if they are there now; else holds nothing. The peer's block table and
/// memory are open (peer_memory.h), as in the other functions. `member` may be this process itself.
bool try_peer_hold(const node::Session& session, const PeerRange& range);
/// The same, and waits until they are there. For a range within a block, and by a process that holds nothing else: so no rank
/// that waits keeps memory that others wait for. `ahead`: so many bytes after the range will be needed next. False if the peer
/// has died.
bool take_peer_hold(const node::Session& session, const PeerRange& range, uint64_t ahead);
void drop_peer_hold(const node::Session& session, const PeerRange& range);

}  // namespace headroom::direct
