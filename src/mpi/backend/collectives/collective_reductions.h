// Reductions among ranks of one node: see collectives.h.
//
// Operands are folded from the last rank to the first, x0 op (x1 op (...)), those of scans from the first on, so the result is
// the same every time, whatever the operation. That need not be the library's order: so only reductions that are exact in any
// order are made here (integers; the largest and smallest of anything, and their places; logical and bitwise operations;
// between two ranks also sums and products of numbers with fractions), or all of it if the user asks for `--reductions direct`.
// The arithmetic is the library's (MPI_Reduce_local), so operations of the program's own work too.
//
// Short operands are sent whole: up to four ranks to everybody, else to one that folds. Of long ones each rank folds a segment,
// straight from the others' memory, and in chunks, so that a folded chunk is fetched while it is in a cache.
#pragma once

#include <cstdint>

#include "mpi/backend/abi.h"
#include "mpi/backend/collectives/numbers.h"

namespace headroom::mpi {

class Waits;

/// These serve a blocking call of that name; false: it is the library's, and nothing has been done. `error`: as MPI returns it,
/// raised.
bool direct_Allreduce(Waits&& ending, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                      MPI_Comm comm, int& error);

bool direct_Reduce(Waits&& ending, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                   int root, MPI_Comm comm, int& error);

/// How many elements there are of `counts` for each rank; nullptr: `each` for all. Negative if one of them is.
int64_t scattered_count(Numbers counts, MPI_Count each, int size);

bool direct_Reduce_scatter(Waits&& ending, const void* sendbuf, void* recvbuf, Numbers recvcounts, MPI_Datatype datatype,
                           MPI_Op op, MPI_Comm comm, int& error);

bool direct_Reduce_scatter_block(Waits&& ending, const void* sendbuf, void* recvbuf, MPI_Count recvcount, MPI_Datatype datatype,
                                 MPI_Op op, MPI_Comm comm, int& error);

bool direct_Scan(Waits&& ending, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                 MPI_Comm comm, int& error);

bool direct_Exscan(Waits&& ending, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                   MPI_Comm comm, int& error);

}  // namespace headroom::mpi
