// Chooses whose messages go between nodes: MPI's where it is there, else libfabric's. RPIPE_BETWEEN=mpi|ofi in the environment
// of any rank asks for one of them. All ranks decide the same, from what they know of each other (Card, OfiCard).
#pragma once

#include "headroom/rpipe.h"
#include "rpipe/card.h"
#include "rpipe/transport.h"

namespace headroom::rpipe {

/// The wish of this rank's environment; kWrong, with a line on stderr: for something that there is not.
Wish read_wish();
/// After begin_peers(), in all ranks; `transport`: MPI's or nullptr, afterwards the one to take, or nullptr. A negative error
/// number, with a line on stderr: the one that was asked for cannot be had.
int choose_transport(const rpipe_bootstrap& bootstrap, const rpipe_transport*& transport);
/// Where the beginning has failed after that.
void leave_transport();
/// A sentence on why there is none. Good until choose_transport() is called again.
const char* why_no_transport();

}  // namespace headroom::rpipe
