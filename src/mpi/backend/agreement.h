// Facts that the ranks of a job find out about one another in MPI_Init: the node of each, and whether messages can be direct.
#pragma once

namespace headroom::mpi {

/// At the end of MPI_Init, by all ranks of the job: finds out the node of each, and sets whether messages can be direct.
void agree_on_direct(int size);

}  // namespace headroom::mpi
