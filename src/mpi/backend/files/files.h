// Files whose collective calls are ours. The calls themselves are in file_calls.h and in collio/.
//
// The library opens the file, and everything but collective access stays its own, unless it was not given the view
// (file_views.h). Beside it there is a second descriptor, a communicator, and the view as a nest or a list of pieces. Whether
// calls on the file are ours is agreed when it is opened, since all ranks must go one way. The position is the library's: it is
// asked for, and set, around each call.
#pragma once

#include <cstdint>

#include "base/system_calls.h"
#include "collio/functions.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/files/file_messages.h"
#include "mpi/backend/objects/datatypes.h"

namespace headroom::mpi {

/// The part of a file that a rank sees: tiles, one behind the other.
struct FileView {
  FilePattern tile;
  int64_t tile_bytes = 1;
  int64_t extent = 1;
  int64_t origin = 0;
  int64_t element_bytes = 1;
  collio::IoPassedFor passed_for = collio::IoPassedFor::kNot;
};

/// A view that the library was not given: copies of the program's datatypes.
struct WithheldView {
  MPI_Datatype element = MPI_DATATYPE_NULL;
  MPI_Datatype tile = MPI_DATATYPE_NULL;
  const char* representation = "native";
};

/// When the library gets a view: a hint of the program's.
enum class ViewHint { kUnlessItIsLarge, kNow, kAsLateAsPossible };

struct IoFile {
  MPI_File handle = MPI_FILE_NULL;
  IoFile* next = nullptr;
  FileMessages messages;  // and the communicator
  int rank = 0;
  int size = 0;
  int nodes = 0;
  int* node_of_rank = nullptr;
  int* aggregators = nullptr;                                  // one rank a node
  collio::IoPassedFor passed_for = collio::IoPassedFor::kNot;  // calls on it, always
  int descriptor = -1;
  bool by_library = false;            // windows go to the file by the library's calls,
  MPI_File librarys = MPI_FILE_NULL;  // on this (file_driver.h)
  int amode = 0;
  bool drops_pages = false;
  bool limits_read_ahead = false;  // now
  base::FutexLock read_ahead_lock;
  collio::PlanLimits limits;
  bool may_aggregate = true;  // this rank's node may, by cb_config_list
  bool stays_apart[2] = {};   // asked for by a hint: when reading, when writing
  ViewHint view_hint = ViewHint::kUnlessItIsLarge;
  FileView view;
  bool withholds = false;  // the view from the library, on all ranks
  WithheldView withheld;
  base::FutexLock view_lock;  // of both, and of the position where the view is withheld
  // Of a call, for all ranks or nodes:
  collio::Opening* openings = nullptr;
  collio::NodeAccess* accesses = nullptr;
  collio::Domain* domains = nullptr;
  int* order = nullptr;
  int64_t room = 0;  // as it was last read
  uint64_t room_read_ns = 0;
  // Between MPI_File_..._begin and _end:
  bool has_begun = false;
  MPI_Status begun_status = {};
};

extern base::FutexLock io_files_lock;

/// The IoFile of a handle; nullptr: its calls are the library's. Any thread may ask.
IoFile* file_of(MPI_File handle);

/// The facts that each rank gives of a file when it is opened.
struct FileCard {
  uint64_t node;
  int64_t error;  // of the library's MPI_File_open
  int64_t passed_for;
  int64_t block_bytes;
  int64_t in_memory;
  int64_t most_window;
  int64_t most_aggregators;
  int64_t by_force;    // headroom_driver=posix
  int64_t by_library;  // =library, or another reason not to use the system's calls
};

/// Whether this rank is its node's aggregator.
bool aggregates(const IoFile& file);

}  // namespace headroom::mpi
