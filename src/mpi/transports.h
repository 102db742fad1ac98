// Transports of MPI libraries beside memory that may move: how the libraries are told to copy; transports.cc.
#pragma once

#include "mpi/cards.h"

namespace headroom::mpi {

/// Sets variables that make the MPI library's transports copy, and excludes transports that would not, in the environment of
/// this process and of those that it starts. The user's settings stay as far as they go with that. `serves`: the fault engine
/// lets the kernel touch absent memory. Before the program begins, and once more before the library does: it may be called
/// again. `library`: where the MPI library lies, which may load UCX later; nullptr if that is not known yet.
void make_transports_copy(const Cards& cards, bool serves, const char* library);

/// Whether UCX, as this process would load it, copies what its cards transfer.
bool does_ucx_copy(const Cards& cards, const char* library);

/// nullptr, or why this library's use of these cards can be neither made to copy nor switched off. `version`: what
/// MPI_Get_library_version() says.
const char* why_it_cannot_copy(const Cards& cards, const char* version);

}  // namespace headroom::mpi
