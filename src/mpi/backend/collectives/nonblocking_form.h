// Blocking collectives that are the library's nonblocking form, polled.
//
// A rank waits best inside the library's own blocking call, with the processor yielded in the library's progress loop
// (progress_hook.cc); nothing about messages or results changes then. Where a library that spins offers no such hook, a
// blocking call is its nonblocking form, polled. One rank never chooses that form of a *collective* alone: the whole job agrees
// on it at MPI_Init, and it is used on communicators whose group lies within MPI_COMM_WORLD's; others (spawned, accepted,
// joined jobs) keep the blocking form on all sides. Reductions take it only where the result cannot depend on the order of
// folding (MPICH 5.0.2 gives other sums by MPI_Iallreduce than by MPI_Allreduce, from 4 ranks on).
#pragma once

#include "mpi/backend/abi.h"

namespace headroom::mpi {

extern bool nonblocking_form;  // agreed at MPI_Init, alike on all ranks
extern int form_key;

/// Polls until the collective is over; MPI's error.
int finish_collective(MPI_Request& request);

/// Whether a blocking collective on `comm` is to be polled; alike on all of its ranks.
bool takes_nonblocking_form(MPI_Comm comm);

}  // namespace headroom::mpi
