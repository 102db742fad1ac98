// Reading and writing a file by the MPI library.
//
// Where the library may know a file system better than we do (NFS, FUSE, those that ROMIO has functions of its own for), it
// reads and writes the windows: by its calls of one rank for data without gaps, on a file that each rank opens for itself
// beside the program's. The memory that two-phase access takes is ours all the same. A library can seldom be called by a thread
// of ours, so the rank does it itself, and nothing is exchanged meanwhile.
#pragma once

#include "collio/functions.h"
#include "mpi/backend/abi.h"

namespace headroom::mpi {

/// Opens the file for this rank alone; false if that cannot be had.
bool open_by_library(MPI_File& file, const char* name, int amode);

/// Nothing if there is none. Returns MPI's error: an earlier write may fail only now.
int close_by_library(MPI_File& file);

/// The library keeps the page cache, and its locks, as it likes.
collio::FileAccess library_file(MPI_File& file);

}  // namespace headroom::mpi
