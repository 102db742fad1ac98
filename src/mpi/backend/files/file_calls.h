// Collective access to files.
//
// A call has three parts. All ranks say what they access (collio::Opening), from which everybody computes the plan; the bytes
// move (collio/call.h); and all agree on whether there was an error, and where the file ended. No rank leaves before: bytes
// that no rank wrote may have been read and written back, and a rank that went on might have written just there.
#pragma once

#include <cstdint>

#include "collio/functions.h"
#include "mpi/backend/abi.h"

namespace headroom::mpi {

struct Datatype;
struct IoFile;

/// The class of a kernel's error.
int class_of_error(int64_t error);

/// A collective call as the program makes it.
struct FileAccessCall {
  bool writes;
  bool at;  // an explicit offset; else from the position on
  MPI_Offset offset;
  void* buffer;
  MPI_Count count;
  MPI_Datatype datatype;
};

/// Fills in what this rank says. Returns its datatype, as far as that is known.
Datatype* open_call(IoFile& file, FileAccessCall& call, collio::Opening& opening);

/// How the file is read and written.
collio::FileAccess access_of(IoFile& file);

/// While windows are read and memory is short; see collio/file_access.h.
void limit_read_ahead(IoFile& file, bool limited);

/// How many of the access's bytes there were, where the file may have ended.
int64_t bytes_moved(const IoFile& file, const collio::Opening& opening, int64_t error, int64_t end_of_file);

/// Tells the program what came of it, and moves the position. Returns MPI's error.
int end_access(const IoFile& file, const FileAccessCall& call, int64_t error, int64_t moved, MPI_Status* status);

}  // namespace headroom::mpi
