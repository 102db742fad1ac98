// The network for messages between nodes that Headroom matches. See direct/network.h.
//
// Records and pieces are the library's messages on a communicator of their own: records have one tag and are taken out of the
// library one at a time (MPI_Improbe), a piece has a tag that its receiver chose. Records are not waited for by receives that
// are posted: MPICH 5.0.2 over UCX loses messages where several receives from any source are (docs/dev/traps.md). A refusal of
// the library's ends the job, since the other rank would wait.
#pragma once

#include "mpi/backend/abi.h"

namespace headroom::mpi {

/// All processes of the job come here, at the end of MPI_Init.
void begin_network(int size);

/// Before a collective call of the library's that cannot be polled: a rank that is in it serves nobody, and another may need it
/// before it comes there. So all wait for each other first, polling.
void arrive_together(MPI_Comm comm);

/// Before MPI_Finalize, when this process needs nothing any more. All ranks come here, serving the others meanwhile; then
/// nobody needs anything. Each rank tells those to which it has ever sent a record that nothing follows, and waits until all
/// ranks that have sent it one have told it so: so nothing is left in the library.
void end_network();

}  // namespace headroom::mpi
