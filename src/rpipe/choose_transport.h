// Whose messages go between nodes: MPI's where it is there, else libfabric's; RPIPE_BETWEEN=mpi|ofi in the environment of any
// rank has it otherwise. All ranks decide the same, from what they know of each other (card.h, OfiCard).
#pragma once

#include <cstdint>

#include "headroom/rpipe.h"
#include "rpipe/transport.h"

namespace headroom::rpipe {

/// Whether the environment asks for libfabric's. 0, or -EINVAL, with a line on stderr: it asks for what there is not.
int read_wish(bool& asks_for_ofi);
/// After begin_peers(), in all ranks; `transport`: MPI's or nullptr, afterwards the one to take. A negative error number, with
/// a line on stderr: one that was asked for cannot be had.
int choose_transport(const rpipe_bootstrap& bootstrap, const rpipe_transport*& transport);
/// A sentence on why there is none. Good until choose_transport() is called again.
const char* why_no_transport();

}  // namespace headroom::rpipe
