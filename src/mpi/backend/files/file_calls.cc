// See file_calls.h.
#include "mpi/backend/files/file_calls.h"

#include <errno.h>

#include <algorithm>
#include <cstdint>

#include "collio/functions.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/failing.h"
#include "mpi/backend/files/file_driver.h"
#include "mpi/backend/files/file_messages.h"
#include "mpi/backend/files/file_views.h"
#include "mpi/backend/files/files.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/messages/request_contents.h"
#include "mpi/backend/objects/datatypes.h"
#include "mpi/services.h"

namespace headroom::mpi {
namespace {

/// How much memory is left on this node, as the rank says that aggregates there. It takes some files of /sys to read, so many
/// short calls in a row look once for all.
int64_t room_of_node(IoFile& file, int64_t bytes) {
  constexpr uint64_t kOldNs = 20'000'000;
  constexpr int64_t kShort = 64 << 10;
  const uint64_t now = base::monotonic_ns();
  if (bytes > kShort || file.room_read_ns == 0 || now - file.room_read_ns > kOldNs) {
    file.room = core->io.room();
    file.room_read_ns = now;
  }
  return file.room;
}

/// Whether all ranks' calls are the library's after all, and why.
collio::IoPassedFor passed_for(const IoFile& file, bool is_interleaved) {
  uint32_t why = 0;
  bool stays_apart = false;
  for (int rank = 0; rank < file.size; ++rank) {
    why = std::max(why, file.openings[rank].passed_for);
    stays_apart = stays_apart || (file.openings[rank].flags & collio::kStaysApart) != 0;
  }
  return why == 0 && stays_apart && is_interleaved ? collio::IoPassedFor::kAsked : static_cast<collio::IoPassedFor>(why);
}

/// Plans which rank aggregates which part. Returns the number of domains.
int plan_call(IoFile& file) {
  for (int node = 0; node < file.nodes; ++node) {
    const int rank = file.aggregators[node];
    const collio::Opening& opening = file.openings[rank];
    file.accesses[node] = {rank, INT64_MAX, 0, (opening.flags & collio::kMayNotAggregate) != 0 ? 0 : opening.room};
  }
  for (int rank = 0; rank < file.size; ++rank) {
    const collio::Opening& opening = file.openings[rank];
    collio::NodeAccess& node = file.accesses[file.node_of_rank[rank]];
    if (opening.bytes > 0) {
      node.first = std::min(node.first, opening.first);
      node.end = std::max(node.end, opening.end);
    }
  }
  return core->io.make_domains(file.accesses, file.nodes, file.limits, file.domains);
}

}  // namespace

void limit_read_ahead(IoFile& file, bool limited) {
  const base::LockHolder lock(file.read_ahead_lock);  // threads may make calls of one rank beside a collective one
  if (file.limits_read_ahead != limited) {
    file.limits_read_ahead = limited;
    core->io.limit_read_ahead(file.descriptor, limited);
  }
}

namespace {

/// Moves the bytes.
collio::Outcome move_bytes(IoFile& file, const FileAccessCall& call, const Datatype& datatype, bool apart, int domains) {
  collio::CallDescription description;
  const collio::Opening& own = file.openings[file.rank];
  description.writes = call.writes;
  description.rank = file.rank;
  description.size = file.size;
  description.openings = file.openings;
  description.domains = file.domains;
  description.domain_count = domains;
  description.user = {static_cast<char*>(call.buffer), static_cast<uint64_t>(own.bytes), datatype.layout};
  description.view = {file.view.tile.list, file.view.origin, file.view.extent};
  description.file = access_of(file);
  description.most_window = file.limits.most_window;
  description.room = core->io.room;
  description.wake = core->io.wake_self;
  int64_t part = own.end - own.first;  // of the file, that this rank reads or writes
  for (int domain = 0; domain < domains && !apart; ++domain) {
    if (file.domains[domain].rank == file.rank) {
      part = file.domains[domain].end - file.domains[domain].begin;
    }
  }
  // Pages of the file are let go of where they would not fit.
  description.drops_pages = file.drops_pages && file.openings[file.aggregators[file.node_of_rank[file.rank]]].room < 2 * part;
  limit_read_ahead(file, description.drops_pages && !apart);
  if (apart) {
    const WithoutSlot waiting;
    return core->io.access_alone(description);
  }
  description.messages = {&file.messages, send_of_file, receive_of_file, test_file_transfer};
  collio::Call* moving = file.messages.make_room(core->io.slots_needed(description)) ? core->io.begin(description) : nullptr;
  if (moving == nullptr) {
    end_job("a collective call on a file", MPI_ERR_NO_MEM);
  }
  wait_for_call(moving, file.messages);
  return core->io.end(moving);
}

/// Serves a collective call; false, and nothing has happened, if it is the library's, on all ranks.
bool perform_call(IoFile& file, FileAccessCall& call, MPI_Status* status, int& error) {
  if (file.passed_for != collio::IoPassedFor::kNot) {
    core->io.count_passed(file.passed_for);
    return false;
  }
  const WaitsForFile waits;
  collio::Opening mine;
  const Datatype* datatype = open_call(file, call, mine);
  mine.flags |= file.stays_apart[call.writes ? 1 : 0] ? uint32_t{collio::kStaysApart} : 0;
  mine.flags |= file.may_aggregate ? 0 : uint32_t{collio::kMayNotAggregate};
  mine.room = aggregates(file) ? room_of_node(file, mine.bytes) : 0;
  share(file.messages, &mine, file.openings, sizeof mine);
  const bool is_interleaved = core->io.is_interleaved(file.openings, file.size, file.order);
  const collio::IoPassedFor why = passed_for(file, is_interleaved);
  if (why != collio::IoPassedFor::kNot) {
    core->io.count_passed(why);
    error = give_view(file);
    return error != MPI_SUCCESS;
  }
  const int domains = is_interleaved ? plan_call(file) : 0;
  const collio::Outcome outcome = move_bytes(file, call, *datatype, !is_interleaved, domains);
  const int64_t said[2] = {outcome.error, -outcome.end_of_file};
  int64_t agreed[2] = {};
  share_largest(file.messages, said, agreed, 2);
  const int64_t moved = bytes_moved(file, mine, agreed[0], -agreed[1]);
  core->io.count({call.writes, !is_interleaved, outcome.windows > 0 && is_interleaved, file.by_library, moved, outcome});
  error = end_access(file, call, agreed[0], moved, status);
  return true;
}

/// The same of one that ends with MPI_File_..._end.
bool begin_call(IoFile& file, FileAccessCall& call, int& error) {
  file.has_begun = perform_call(file, call, &file.begun_status, error);
  return file.has_begun;
}

/// Whether the call that ends now was ours, with its status.
bool end_call(MPI_File handle, MPI_Status* status) {
  IoFile* file = file_of(handle);
  if (file == nullptr || !file->has_begun) {
    return false;
  }
  file->has_begun = false;
  set_status_of_library(status, file->begun_status);
  return true;
}

}  // namespace

int class_of_error(int64_t error) {
  switch (error) {
    case 0:
      return MPI_SUCCESS;
    case ENOSPC:
      return MPI_ERR_NO_SPACE;
    case EDQUOT:
      return MPI_ERR_QUOTA;
    case EACCES:
    case EPERM:
      return MPI_ERR_ACCESS;
    case EROFS:
      return MPI_ERR_READ_ONLY;
    case ENOMEM:
      return MPI_ERR_NO_MEM;
    default:
      return MPI_ERR_IO;
  }
}

Datatype* open_call(IoFile& file, FileAccessCall& call, collio::Opening& opening) {
  int is_atomic = 0;
  {
    const InsideLibrary inside;
    real.File_get_atomicity[1](file.handle, &is_atomic);
    if (!call.at) {
      real.File_get_position[1](file.handle, &call.offset);
    }
  }
  const bool is_forbidden =
      (file.amode & (call.writes ? MPI_MODE_RDONLY : MPI_MODE_WRONLY)) != 0 || call.count < 0 || call.offset < 0;
  Datatype* datatype = is_forbidden ? nullptr : datatype_of_message(call.buffer, call.count, call.datatype);
  collio::IoPassedFor why = collio::IoPassedFor::kNot;
  int64_t bytes = 0;
  int64_t skip = 0;
  if (is_forbidden || datatype == nullptr ||
      __builtin_mul_overflow(call.count, static_cast<int64_t>(datatype->bytes), &bytes) ||
      __builtin_mul_overflow(call.offset, file.view.element_bytes, &skip) || bytes % file.view.element_bytes != 0) {
    why = collio::IoPassedFor::kArguments;
  } else if (call.buffer == nullptr && datatype->usable && datatype->layout == nullptr && bytes > 0) {
    why = collio::IoPassedFor::kArguments;
  } else if (is_atomic != 0) {
    why = collio::IoPassedFor::kMode;
  } else if (file.view.passed_for != collio::IoPassedFor::kNot) {
    why = file.view.passed_for;
  } else if (!datatype->usable ||
             !core->io.describe(file.view.tile, file.view.origin, file.view.extent, skip, bytes, opening)) {
    why = collio::IoPassedFor::kDatatypes;
  }
  opening.passed_for = static_cast<uint32_t>(why);
  return datatype;
}

collio::FileAccess access_of(IoFile& file) {
  return file.by_library ? library_file(file.librarys) : core->io.posix_file(file.descriptor);
}

int64_t bytes_moved(const IoFile& file, const collio::Opening& opening, int64_t error, int64_t end_of_file) {
  const collio::ViewOfPieces view = {file.view.tile.list, file.view.origin, file.view.extent};
  const int64_t whole = error != 0 ? 0 : opening.bytes;
  return whole > 0 && end_of_file != INT64_MAX ? core->io.bytes_before(opening, view, end_of_file) : whole;
}

int end_access(const IoFile& file, const FileAccessCall& call, int64_t error, int64_t moved, MPI_Status* status) {
  const int kind = class_of_error(error);
  set_empty_status(status);
  set_status(status, MPI_ANY_SOURCE, MPI_ANY_TAG, static_cast<uint64_t>(moved), false);
  const InsideLibrary inside;
  if (kind != MPI_SUCCESS) {
    real.File_call_errhandler[1](file.handle, kind);
  } else if (!call.at) {
    real.File_seek[1](file.handle, call.offset + moved / file.view.element_bytes, MPI_SEEK_SET);
  }
  return kind;
}

// Parameters of the functions: with an explicit offset or without.
#define HEADROOM_FILE_CALL(Name, writes, Const, Count)                                                                       \
  int serve_File_##Name(MPI_File fh, Const void* buf, Count count, MPI_Datatype datatype, MPI_Status* status, Entry entry) { \
    IoFile* file = file_of(fh);                                                                                              \
    FileAccessCall call = {writes, false, 0, const_cast<void*>(buf), count, datatype};                                       \
    int error = MPI_SUCCESS;                                                                                                 \
    if (file != nullptr && perform_call(*file, call, status, error)) {                                                       \
      return error;                                                                                                          \
    }                                                                                                                        \
    const InsideLibrary inside;                                                                                              \
    const WithoutSlot waiting;                                                                                               \
    return real.File_##Name[entry](fh, buf, count, datatype, status);                                                        \
  }

#define HEADROOM_FILE_CALL_AT(Name, writes, Const, Count)                                                    \
  int serve_File_##Name(MPI_File fh, MPI_Offset offset, Const void* buf, Count count, MPI_Datatype datatype, \
                        MPI_Status* status, Entry entry) {                                                   \
    IoFile* file = file_of(fh);                                                                              \
    FileAccessCall call = {writes, true, offset, const_cast<void*>(buf), count, datatype};                   \
    int error = MPI_SUCCESS;                                                                                 \
    if (file != nullptr && perform_call(*file, call, status, error)) {                                       \
      return error;                                                                                          \
    }                                                                                                        \
    const InsideLibrary inside;                                                                              \
    const WithoutSlot waiting;                                                                               \
    return real.File_##Name[entry](fh, offset, buf, count, datatype, status);                                \
  }

#define HEADROOM_FILE_BEGIN(Name, writes, Const, Count)                                                  \
  int serve_File_##Name(MPI_File fh, Const void* buf, Count count, MPI_Datatype datatype, Entry entry) { \
    IoFile* file = file_of(fh);                                                                          \
    FileAccessCall call = {writes, false, 0, const_cast<void*>(buf), count, datatype};                   \
    int error = MPI_SUCCESS;                                                                             \
    if (file != nullptr && begin_call(*file, call, error)) {                                             \
      return error;                                                                                      \
    }                                                                                                    \
    const InsideLibrary inside;                                                                          \
    const WithoutSlot waiting;                                                                           \
    return real.File_##Name[entry](fh, buf, count, datatype);                                            \
  }

#define HEADROOM_FILE_BEGIN_AT(Name, writes, Const, Count)                                                                  \
  int serve_File_##Name(MPI_File fh, MPI_Offset offset, Const void* buf, Count count, MPI_Datatype datatype, Entry entry) { \
    IoFile* file = file_of(fh);                                                                                             \
    FileAccessCall call = {writes, true, offset, const_cast<void*>(buf), count, datatype};                                  \
    int error = MPI_SUCCESS;                                                                                                \
    if (file != nullptr && begin_call(*file, call, error)) {                                                                \
      return error;                                                                                                         \
    }                                                                                                                       \
    const InsideLibrary inside;                                                                                             \
    const WithoutSlot waiting;                                                                                              \
    return real.File_##Name[entry](fh, offset, buf, count, datatype);                                                       \
  }

#define HEADROOM_FILE_END(Name, Const)                                                   \
  int serve_File_##Name(MPI_File fh, Const void* buf, MPI_Status* status, Entry entry) { \
    if (end_call(fh, status)) {                                                          \
      return MPI_SUCCESS;                                                                \
    }                                                                                    \
    const InsideLibrary inside;                                                          \
    const WithoutSlot waiting;                                                           \
    return real.File_##Name[entry](fh, buf, status);                                     \
  }

HEADROOM_FILE_CALL(read_all, false, , int)
HEADROOM_FILE_CALL(read_all_c, false, , MPI_Count)
HEADROOM_FILE_CALL(write_all, true, const, int)
HEADROOM_FILE_CALL(write_all_c, true, const, MPI_Count)
HEADROOM_FILE_CALL_AT(read_at_all, false, , int)
HEADROOM_FILE_CALL_AT(read_at_all_c, false, , MPI_Count)
HEADROOM_FILE_CALL_AT(write_at_all, true, const, int)
HEADROOM_FILE_CALL_AT(write_at_all_c, true, const, MPI_Count)
HEADROOM_FILE_BEGIN(read_all_begin, false, , int)
HEADROOM_FILE_BEGIN(read_all_begin_c, false, , MPI_Count)
HEADROOM_FILE_BEGIN(write_all_begin, true, const, int)
HEADROOM_FILE_BEGIN(write_all_begin_c, true, const, MPI_Count)
HEADROOM_FILE_BEGIN_AT(read_at_all_begin, false, , int)
HEADROOM_FILE_BEGIN_AT(read_at_all_begin_c, false, , MPI_Count)
HEADROOM_FILE_BEGIN_AT(write_at_all_begin, true, const, int)
HEADROOM_FILE_BEGIN_AT(write_at_all_begin_c, true, const, MPI_Count)
HEADROOM_FILE_END(read_all_end, )
HEADROOM_FILE_END(write_all_end, const)
HEADROOM_FILE_END(read_at_all_end, )
HEADROOM_FILE_END(write_at_all_end, const)

}  // namespace headroom::mpi
