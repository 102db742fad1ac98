// The records of this process's ends: taken from its file as they are needed, used again for the same peer once both ends of a
// pipe are gone. One that is in a peer's list stays in it: the peer may be going through it.
//
// Thread-safe.
#pragma once

#include <cstdint>

#include "rpipe/shared.h"

namespace headroom::rpipe {

/// A record in the list for this rank, which nobody has met yet: no key; nullptr if there is none. `offset` in the file.
Record* take_record(int rank, uint64_t& offset);
/// Makes it as new, but for its place in the list and its number.
void clear_record(Record& record);
/// The next opening of this channel with this rank.
uint32_t next_opening(int rank, uint32_t channel);
/// Nobody looks at it any more.
void give_record_back(int rank, uint64_t offset);
/// Forgets all; the file goes with the peers (end_peers()).
void forget_records();

}  // namespace headroom::rpipe
