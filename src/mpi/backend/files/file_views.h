// Views of files.
//
// Of a view that is no array of neighbours the libraries keep a list, of 16 bytes and more for each piece, on every rank. Of
// one with many pieces this is more memory than all else that a collective call takes. So such a view is withheld: the library
// gets one without gaps instead, with elements of the same size, and goes on keeping positions, which count elements. These
// calls need the view all the same:
//
//   collective calls                are ours (file_calls.h)
//   calls of one rank               walk the view here (file_alone.cc)
//   nonblocking collective calls    the same, since they must not wait for other ranks
//   ordered calls, atomic mode,     the library gets the view first (give_view()): all ranks wait for each other there anyway
//   calls that cannot be ours
//   calls by the shared position    are refused, since a rank cannot give the view alone
//
// All ranks withhold, or none does: they agree when the view is set. Several threads may make calls of one rank meanwhile, so
// the view and the position are under a lock; no thread waits for other ranks while it has it.
#pragma once

#include "mpi/backend/abi.h"

namespace headroom::mpi {

struct IoFile;

/// Frees a copy of a datatype, unless it is predefined or none; it is none then.
void drop_copy(MPI_Datatype& copy);

/// Frees the copies that stand for the view. The library has it, or the file is closed.
void drop_withheld_view(IoFile& file);

/// Gives the library the view that was withheld from it. All ranks of the file call it, and have the same to give. Returns
/// MPI's error, on all of them if there was one: then it stays withheld, and the library's part of it is not used.
int give_view(IoFile& file);

/// The same by handle; of a file that is not ours nothing is done.
int give_view_of(MPI_File handle);

/// Whether a call by the shared position must be refused; then the program has been told.
bool refuses_shared(MPI_File handle, MPI_Status* status);

/// The same of a call that does not wait: `request` becomes none.
bool refuses_shared(MPI_File handle, MPI_Request* request);

}  // namespace headroom::mpi
