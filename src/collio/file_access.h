// How the engine reads and writes a file: a table of functions, so that a test can let them fail.
//
// Positions and lengths are bytes. Errors are the kernel's, positive (ENOSPC, EIO).
#pragma once

#include <cstdint>

namespace headroom::collio {

struct FileAccess {
  /// Reads until the end of the file or `bytes`; -error, or how many were read.
  int64_t (*read)(const FileAccess& file, char* to, int64_t bytes, int64_t position);
  /// Writes all of it; 0 or an error.
  int (*write)(const FileAccess& file, const char* from, int64_t bytes, int64_t position);
  /// Begins to write pages of the cache to the disk.
  void (*push)(const FileAccess& file, int64_t position, int64_t bytes);
  /// Waits until that is done, and takes the pages out of the cache; an error, if the disk had one.
  int (*drop)(const FileAccess& file, int64_t position, int64_t bytes);
  /// Keeps others that lock it (other opened files of this machine, and ROMIO) from the bytes there until unlock(); waits for
  /// them.
  void (*lock)(const FileAccess& file, int64_t position, int64_t bytes);
  void (*unlock)(const FileAccess& file, int64_t position, int64_t bytes);
  int descriptor = -1;
  void* context = nullptr;      // of functions that need no descriptor
  bool wants_its_rank = false;  // only the thread that makes the call may use them
};

/// The system calls.
FileAccess posix_file(int descriptor);

/// Where memory is short, reads bring in what is asked for and no more: the kernel reads ahead as much as the disk's settings
/// say (8 MiB and more on some), and cannot let go of pages that it is reading. Windows are read ahead by the engine itself.
void limit_read_ahead(int descriptor, bool limited);

enum class FileSystem { kLocal, kMemory, kParallel, kOther };

/// The kind of file system that an open file lies in, and the size of its blocks (stripes, on Lustre) in bytes. kLocal: the
/// node's own, with a page cache; kMemory: tmpfs; kParallel: of several nodes, and coherent (GPFS, BeeGFS, Lustre); kOther: to
/// be read and written by the MPI library, which may know it.
FileSystem file_system_of(int descriptor, int64_t& block_bytes);

}  // namespace headroom::collio
