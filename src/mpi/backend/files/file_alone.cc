// Calls that one rank makes alone, and nonblocking ones of all ranks, on files whose view the library was not given
// (file_views.h).
//
// The rank walks its view and accesses the file by the second descriptor. Pieces are written one by one: to read what lies
// between them and write it back would undo what another rank writes there meanwhile. They are written under a lock, since
// others may do just that (a collective call on another handle of the file). Nonblocking calls are done at once, and their
// requests are complete.
#include <cstdint>

#include "base/system_calls.h"
#include "collio/functions.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/files/file_calls.h"
#include "mpi/backend/files/files.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/messages/request_contents.h"
#include "mpi/backend/objects/datatypes.h"
#include "mpi/services.h"

namespace headroom::mpi {
namespace {

/// The error that the library would return for arguments that MPI forbids.
int error_of_arguments(const IoFile& file, const FileAccessCall& call, const Datatype* datatype) {
  if (call.count < 0 || call.offset < 0) {
    return call.count < 0 ? MPI_ERR_COUNT : MPI_ERR_ARG;
  }
  if ((file.amode & (call.writes ? MPI_MODE_RDONLY : MPI_MODE_WRONLY)) != 0) {
    return call.writes ? MPI_ERR_READ_ONLY : MPI_ERR_ACCESS;
  }
  if (datatype == nullptr) {
    return MPI_ERR_TYPE;
  }
  return call.buffer == nullptr && datatype->layout == nullptr ? MPI_ERR_BUFFER : MPI_ERR_IO;  // not whole elements of the view
}

/// Accesses the file, by the lock's owner. Returns the kernel's error; `kind` is MPI's, if the call must be refused.
int64_t access_alone(IoFile& file, FileAccessCall& call, int64_t& moved, int& kind) {
  collio::Opening opening;
  const Datatype* datatype = open_call(file, call, opening);
  const auto why = static_cast<collio::IoPassedFor>(opening.passed_for);
  if (why == collio::IoPassedFor::kArguments) {
    kind = error_of_arguments(file, call, datatype);
    return 0;
  }
  if (why != collio::IoPassedFor::kNot) {
    core->io.say_not_alone();
    kind = MPI_ERR_UNSUPPORTED_OPERATION;
    return 0;
  }
  collio::CallDescription description;
  description.writes = call.writes;
  description.size = 1;
  description.openings = &opening;
  description.user = {static_cast<char*>(call.buffer), static_cast<uint64_t>(opening.bytes), datatype->layout};
  description.view = {file.view.tile.list, file.view.origin, file.view.extent};
  description.file = access_of(file);
  description.drops_pages = false;
  limit_read_ahead(file, false);
  description.fills_holes = false;
  description.most_window = file.limits.most_window;
  description.room = core->io.room;
  collio::Outcome outcome;
  {
    const WithoutSlot waiting;
    outcome = core->io.access_alone(description);
  }
  moved = bytes_moved(file, opening, outcome.error, outcome.end_of_file);
  core->io.count_alone(moved);
  return outcome.error;
}

/// Serves the call; false, and nothing has happened, if the library has the view. `moved`: so many bytes.
bool perform_alone(IoFile& file, FileAccessCall& call, MPI_Status* status, int64_t& moved, int& error) {
  int kind = MPI_SUCCESS;
  {
    const base::LockHolder lock(file.view_lock);
    if (!file.withholds) {
      return false;
    }
    const int64_t failed = access_alone(file, call, moved, kind);
    kind = kind != MPI_SUCCESS ? kind : class_of_error(failed);
    if (kind == MPI_SUCCESS) {
      error = end_access(file, call, 0, moved, status);
      return true;
    }
  }
  // The program's handler may call anything.
  set_empty_status(status);
  error = kind;
  const InsideLibrary inside;
  real.File_call_errhandler[1](file.handle, error);
  return true;
}

// The request of a nonblocking call that is over: the library asks for its status.
int say_bytes_moved(void* bytes, MPI_Status* status) {
  set_status(status, MPI_ANY_SOURCE, MPI_ANY_TAG, reinterpret_cast<uintptr_t>(bytes), false);
  return MPI_SUCCESS;
}

int forget_bytes_moved(void*) { return MPI_SUCCESS; }

int cancel_what_is_over(void*, int) { return MPI_SUCCESS; }

/// The same of a nonblocking call, with a request that is complete unless there was an error.
bool start_alone(IoFile& file, FileAccessCall& call, MPI_Request* request, int& error) {
  int64_t moved = 0;
  MPI_Status status;
  if (!perform_alone(file, call, &status, moved, error)) {
    return false;
  }
  *request = MPI_REQUEST_NULL;
  if (error == MPI_SUCCESS) {
    const InsideLibrary inside;
    error = real.Grequest_start[1](say_bytes_moved, forget_bytes_moved, cancel_what_is_over, reinterpret_cast<void*>(moved),
                                   request);
    if (error == MPI_SUCCESS) {
      error = real.Grequest_complete[1](*request);
    }
  }
  return true;
}

}  // namespace

#define HEADROOM_FILE_ALONE(Name, writes, Const, Count)                                                                      \
  int serve_File_##Name(MPI_File fh, Const void* buf, Count count, MPI_Datatype datatype, MPI_Status* status, Entry entry) { \
    IoFile* file = file_of(fh);                                                                                              \
    FileAccessCall call = {writes, false, 0, const_cast<void*>(buf), count, datatype};                                       \
    int error = MPI_SUCCESS;                                                                                                 \
    int64_t moved = 0;                                                                                                       \
    if (file != nullptr && perform_alone(*file, call, status, moved, error)) {                                               \
      return error;                                                                                                          \
    }                                                                                                                        \
    const InsideLibrary inside;                                                                                              \
    const WaysMayChange change;                                                                                              \
    const WithoutSlot waiting;                                                                                               \
    return real.File_##Name[entry](fh, buf, count, datatype, status);                                                        \
  }

#define HEADROOM_FILE_ALONE_AT(Name, writes, Const, Count)                                                   \
  int serve_File_##Name(MPI_File fh, MPI_Offset offset, Const void* buf, Count count, MPI_Datatype datatype, \
                        MPI_Status* status, Entry entry) {                                                   \
    IoFile* file = file_of(fh);                                                                              \
    FileAccessCall call = {writes, true, offset, const_cast<void*>(buf), count, datatype};                   \
    int error = MPI_SUCCESS;                                                                                 \
    int64_t moved = 0;                                                                                       \
    if (file != nullptr && perform_alone(*file, call, status, moved, error)) {                               \
      return error;                                                                                          \
    }                                                                                                        \
    const InsideLibrary inside;                                                                              \
    const WaysMayChange change;                                                                              \
    const WithoutSlot waiting;                                                                               \
    return real.File_##Name[entry](fh, offset, buf, count, datatype, status);                                \
  }

#define HEADROOM_FILE_START(Name, writes, Const, Count)                                                                        \
  int serve_File_##Name(MPI_File fh, Const void* buf, Count count, MPI_Datatype datatype, MPI_Request* request, Entry entry) { \
    IoFile* const file = file_of(fh);                                                                                          \
    FileAccessCall call = {writes, false, 0, const_cast<void*>(buf), count, datatype};                                         \
    int error = MPI_SUCCESS;                                                                                                   \
    if (file != nullptr && start_alone(*file, call, request, error)) {                                                         \
      return error;                                                                                                            \
    }                                                                                                                          \
    const InsideLibrary inside;                                                                                                \
    return real.File_##Name[entry](fh, buf, count, datatype, request);                                                         \
  }

#define HEADROOM_FILE_START_AT(Name, writes, Const, Count)                                                   \
  int serve_File_##Name(MPI_File fh, MPI_Offset offset, Const void* buf, Count count, MPI_Datatype datatype, \
                        MPI_Request* request, Entry entry) {                                                 \
    IoFile* const file = file_of(fh);                                                                        \
    FileAccessCall call = {writes, true, offset, const_cast<void*>(buf), count, datatype};                   \
    int error = MPI_SUCCESS;                                                                                 \
    if (file != nullptr && start_alone(*file, call, request, error)) {                                       \
      return error;                                                                                          \
    }                                                                                                        \
    const InsideLibrary inside;                                                                              \
    return real.File_##Name[entry](fh, offset, buf, count, datatype, request);                               \
  }

HEADROOM_FILE_ALONE(read, false, , int)
HEADROOM_FILE_ALONE(read_c, false, , MPI_Count)
HEADROOM_FILE_ALONE(write, true, const, int)
HEADROOM_FILE_ALONE(write_c, true, const, MPI_Count)
HEADROOM_FILE_ALONE_AT(read_at, false, , int)
HEADROOM_FILE_ALONE_AT(read_at_c, false, , MPI_Count)
HEADROOM_FILE_ALONE_AT(write_at, true, const, int)
HEADROOM_FILE_ALONE_AT(write_at_c, true, const, MPI_Count)
HEADROOM_FILE_START(iread_all, false, , int)
HEADROOM_FILE_START(iread_all_c, false, , MPI_Count)
HEADROOM_FILE_START(iwrite_all, true, const, int)
HEADROOM_FILE_START(iwrite_all_c, true, const, MPI_Count)
HEADROOM_FILE_START_AT(iread_at_all, false, , int)
HEADROOM_FILE_START_AT(iread_at_all_c, false, , MPI_Count)
HEADROOM_FILE_START_AT(iwrite_at_all, true, const, int)
HEADROOM_FILE_START_AT(iwrite_at_all_c, true, const, MPI_Count)
HEADROOM_FILE_START(iread, false, , int)
HEADROOM_FILE_START(iread_c, false, , MPI_Count)
HEADROOM_FILE_START(iwrite, true, const, int)
HEADROOM_FILE_START(iwrite_c, true, const, MPI_Count)
HEADROOM_FILE_START_AT(iread_at, false, , int)
HEADROOM_FILE_START_AT(iread_at_c, false, , MPI_Count)
HEADROOM_FILE_START_AT(iwrite_at, true, const, int)
HEADROOM_FILE_START_AT(iwrite_at_c, true, const, MPI_Count)

}  // namespace headroom::mpi
