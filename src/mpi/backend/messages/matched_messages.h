// MPI_Mprobe and what belongs to it.
//
// A message of ours that was taken out needs a handle. It is that of a message of the library's own, which this process sent to
// itself and took out: unique, and good for conversions. Such tokens are kept and used again.
#pragma once

#include "mpi/backend/abi.h"

namespace headroom::mpi {

/// Whether a message of `comm` was taken out by MPI_Mprobe and not received yet.
bool is_any_message_taken_out_on(MPI_Comm comm);

/// `comm` is freed (messages/freed_communicators.h).
void raise_errors_of_messages_on(MPI_Comm comm, MPI_Comm stand_in);

/// Gives the library its messages back.
void end_tokens();

}  // namespace headroom::mpi
