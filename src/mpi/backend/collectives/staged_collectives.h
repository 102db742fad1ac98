// Collectives on communicators that span nodes, in stages: see collectives.h.
//
// The ranks of a node do their part by direct messages with its first rank, the leader, and the leaders do theirs by the
// library, in a communicator of their own. So only leaders wait in the library, and ranks that wait for their leader are woken
// like from any message. Only calls that give the same result that way: MPI_Barrier, MPI_Bcast, and short MPI_Allreduce that
// are exact in any order; and only where some node has several of the communicator's ranks. All ranks know alike which rank is
// on which node.
#pragma once

#include "mpi/backend/abi.h"

namespace headroom::mpi {

struct Communicator;
struct Datatype;

struct Stages {
  Communicator* local;  // the ranks of this node; not the program's
  MPI_Comm leaders;     // MPI_COMM_NULL on others
  int* node_of_rank;    // nodes are numbered by their leaders, which are numbered alike in `leaders`
  Stages** link;        // where it is entered among all of them
  Stages* next;
};

/// Numbers the nodes of the communicator's ranks; how many there are, or 0 if some rank is in another MPI_COMM_WORLD.
int number_nodes(MPI_Comm comm, int size, int* node_of_rank, int* leaders);

/// Before MPI_Finalize, while communicators can still be freed.
void drop_all_leaders();

/// Gives back what a communicator has for its stages; nullptr: nothing.
void free_stages(Stages* stages);

/// These return MPI's error, raised.
int barrier_in_stages(Communicator& communicator, MPI_Comm comm);

int broadcast_in_stages(Communicator& communicator, void* buffer, int count, MPI_Datatype datatype, const Datatype& known,
                        int root, MPI_Comm comm);

/// Short content.
bool broadcast_in_stages(Communicator& communicator, void* buffer, MPI_Count count, MPI_Datatype datatype, int root,
                         MPI_Comm comm, int& error);

/// Short operands.
bool reduce_in_stages(Communicator& communicator, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype,
                      MPI_Op op, MPI_Comm comm, int& error);

}  // namespace headroom::mpi
