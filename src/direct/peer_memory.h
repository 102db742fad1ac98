// Peers' evictable memory, as this process sees it.
//
// A rank's partition lies at the same addresses in all processes of the node, so another rank's pointer into it is good here
// as soon as its file is mapped. That is done when a rank is first heard of, by way of /proc: its file's number is in the
// ledger, and the file's inode tells that it is the right one. Where that is not allowed, or the addresses are not free,
// content goes through message memory instead.
//
// Memory that lies there may be used only under a hold: one of its owner's (pager::hold_for_peer), which a Transfer stands for,
// or one of this process's in the owner's block table (peer_hold.h).
#pragma once

#include "arena/arena.h"
#include "node/session.h"

namespace headroom::direct {

/// Maps member `index`'s memory here if it is not yet; false if that cannot be had (found out once).
bool open_peer_memory(const node::Session& session, int index);

/// Maps member `index`'s block table here, if it is not yet; nullptr if that cannot be had (found out once).
arena::BlockWord* open_peer_blocks(const node::Session& session, int index);

/// Gives the memory of members that have left to the system: their files last as long as they are mapped here, and their memory
/// is no longer on their account. (Not of those that died: survivors may be reading there, and learn of it later. Nor of those
/// that have forked: their children map it privately, and would find holes where they had zeros.) Called by the pager's thread
/// when something has changed on the node.
void empty_memory_of_who_left(const node::Session& session);

/// Before [begin, begin + bytes) of a peer's partition, which is held, is copied from or to: has the kernel map its pages here
/// in one call if they were not used before, instead of one fault for each. Only a matter of speed; does nothing for other
/// addresses.
void expect_use(const char* begin, uint64_t bytes);

}  // namespace headroom::direct
