// Attributes of MPI_COMM_SELF.
//
// MPI_Finalize begins with deleting them, and their delete functions may still use all of MPI: libraries end what they have
// under way so. The library would do that when our requests are gone already, so they are deleted here, before: the last one
// that was set first, as MPI says.
#pragma once

namespace headroom::mpi {

/// Delete functions may set others; these are deleted, too.
void delete_attributes_of_self();

}  // namespace headroom::mpi
