// Messages between nodes by libfabric (OFI), for ranks without MPI, and where RPIPE_BETWEEN=ofi asks for it: a transport
// (transport.h) that lives from rpipe_init() to rpipe_finalize().
//
// A message is one of libfabric's with a tag, which says whose it is and which of the transport's tags it has. A message that
// the library refuses for the moment (it connects when something is sent first) waits here in its order. A thread moves what is
// on its way while no other thread does: some of libfabric's networks move nothing by themselves, whatever they say.
//
// A rank that dies is seen by a connection beside (death_watch.h), over networks whose names are addresses of the internet's,
// or when something cannot be sent to it. Messages that it had sent may come later than that: it counts as gone when nothing
// has come from it for a moment, longer where content is on its way that it has announced.
//
// At the end each rank sends a last message, which is over only when it has been received, to each from which anything came.
#pragma once

#include <cstdint>
#include <vector>

#include "rpipe/transport.h"

namespace headroom::rpipe {

/// The card that a rank gives the others.
struct OfiCard {
  uint64_t nonce;
  uint32_t bytes;       // of its name; 0: it has none
  uint16_t watch_port;  // in network byte order; 0: its death is not seen
  uint16_t padding;
  char name[64];
  char network[64];  // two ranks reach each other if theirs are equal
  char why_not[192];
};

/// Opens libfabric's network in this process. Not thread-safe, like the others.
OfiCard open_ofi(uint64_t nonce);
/// Messages to `all`, which have names.
const rpipe_transport* join_ofi(int self, const std::vector<OfiCard>& all);
/// Closes it, if it is open and its thread does not run.
void close_ofi();

}  // namespace headroom::rpipe
