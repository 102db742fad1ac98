// See files.h.
#include "mpi/backend/files/files.h"

#include <errno.h>
#include <fcntl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/system_calls.h"
#include "collio/functions.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/files/file_driver.h"
#include "mpi/backend/files/file_hints.h"
#include "mpi/backend/files/file_messages.h"
#include "mpi/backend/files/file_views.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/memory.h"
#include "mpi/backend/messages/network.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/objects/datatypes.h"
#include "mpi/backend/state.h"
#include "mpi/services.h"

namespace headroom::mpi {
namespace {

IoFile* io_files = nullptr;

template <typename T>
T* array_of(int count) {
  return static_cast<T*>(memory_or_abort(sizeof(T) * static_cast<size_t>(count)));
}

/// Whether the name says which file system's functions the library is to use ("nfs:/home/x").
bool has_prefix(const char* name) {
  const char* colon = strchr(name, ':');
  const char* slash = strchr(name, '/');
  return colon != nullptr && colon - name > 1 && (slash == nullptr || colon < slash);
}

/// Opens the file a second time, and finds out where it lies. Says on the card where the library knows more of that.
void open_again(IoFile& file, const char* name, bool by_force, FileCard& card) {
  const int access = (file.amode & MPI_MODE_RDONLY) != 0 ? O_RDONLY : O_RDWR;  // holes are read
  file.descriptor = core->io.open_file(name, access);
  if (file.descriptor < 0) {
    // The library could not do either what this process may not, or cannot, do.
    const int error = -file.descriptor;
    const bool cannot = error == EACCES || error == EPERM || error == EROFS || error == EMFILE || error == ENFILE;
    card.passed_for = static_cast<int64_t>(cannot ? collio::IoPassedFor::kFileSystem : collio::IoPassedFor::kNot);
    card.by_library = cannot ? 0 : 1;
    file.descriptor = -1;
    return;
  }
  const collio::FileSystem kind = core->io.file_system_of(file.descriptor, card.block_bytes);
  card.in_memory = kind == collio::FileSystem::kMemory ? 1 : 0;
  card.by_library = kind == collio::FileSystem::kOther && !by_force ? 1 : 0;
}

/// How the library has striped the file, in bytes; 0 if it does not say.
int64_t stripe_of(MPI_File handle) {
  const InsideLibrary inside;
  MPI_Info used = MPI_INFO_NULL;
  char value[kHintBytes];
  if (real.File_get_info[1](handle, &used) != MPI_SUCCESS || used == MPI_INFO_NULL) {
    return 0;
  }
  const bool is_known = hint_in(used, "striping_unit", value);
  real.Info_free[1](&used);
  return is_known ? std::max<int64_t>(strtoll(value, nullptr, 10), 0) : 0;
}

/// Gives every rank the cards of all.
void exchange_cards(const IoFile& file, const FileCard& mine, FileCard* all) { share(file.messages, &mine, all, sizeof mine); }

/// Numbers the nodes of the file's ranks; the first rank of each aggregates.
void find_nodes(IoFile& file, const FileCard* cards) {
  file.node_of_rank = array_of<int>(file.size);
  file.aggregators = array_of<int>(file.size);
  for (int rank = 0; rank < file.size; ++rank) {
    file.order[rank] = rank;
  }
  std::sort(file.order, file.order + file.size, [&](int one, int other) {
    return cards[one].node != cards[other].node ? cards[one].node < cards[other].node : one < other;
  });
  for (int at = 0; at < file.size; ++at) {
    const int rank = file.order[at];
    if (at == 0 || cards[rank].node != cards[file.order[at - 1]].node) {
      file.aggregators[file.nodes++] = rank;
    }
    file.node_of_rank[rank] = file.nodes - 1;
  }
}

void leave_to_library(IoFile& file);

void drop_file(IoFile* file) {
  leave_to_library(*file);
  drop_withheld_view(*file);
  file->messages.drop();
  free(file->node_of_rank);
  free(file->aggregators);
  free(file->openings);
  free(file->accesses);
  free(file->domains);
  free(file->order);
  file->~IoFile();
  free(file);
}

/// Agrees with the others on whether calls on this file are ours, and whether the library reads and writes it. Returns the
/// largest of `passed_for`.
collio::IoPassedFor agree_on_file(IoFile& file, FileCard& mine, FileCard* cards) {
  exchange_cards(file, mine, cards);
  int64_t largest = 0;
  for (int rank = 0; rank < file.size; ++rank) {
    largest = std::max(largest, cards[rank].passed_for);
    file.by_library = file.by_library || cards[rank].by_library != 0;
  }
  return static_cast<collio::IoPassedFor>(largest);
}

constexpr int kConstructorOfFiles = 4000;  // constructors are numbered by MPI's functions otherwise

/// The file's own communicator; false if there is none. Not a duplicate, which would call the copy functions of the program's
/// attributes. MPICH counts collectives, and the making of communicators by all of their ranks is made of them; Open MPI makes
/// those of groups by messages that a receive of the program's might get.
bool make_communicator(MPI_Comm comm, IoFile& file) {
  const InsideLibrary inside;
  arrive_together(comm);
  const WithoutSlot waiting;
  int error = MPI_SUCCESS;
  if (library_counts) {
    MPI_Group group = MPI_GROUP_NULL;
    real.Comm_group[1](comm, &group);
    error = real.Comm_create_group[1](comm, group, kPrivateTag, &file.messages.comm);
    real.Group_free[1](&group);
  } else {
    error = real.Comm_split[1](comm, 0, 0, &file.messages.comm);
  }
  if (error == MPI_SUCCESS && file.messages.comm != MPI_COMM_NULL) {
    real.Comm_set_errhandler[1](file.messages.comm, MPI_ERRORS_RETURN);
    return true;
  }
  file.messages.comm = MPI_COMM_NULL;
  return false;
}

/// Closes what was opened a second time.
void close_again(IoFile& file) {
  if (file.descriptor >= 0) {
    core->io.close_file(file.descriptor);
    file.descriptor = -1;
  }
  (void)close_by_library(file.librarys);
}

/// Frees what a file needs whose calls are the library's after all.
void leave_to_library(IoFile& file) {
  if (file.messages.comm != MPI_COMM_NULL) {
    const InsideLibrary inside;
    real.Comm_free[1](&file.messages.comm);
  }
  close_again(file);
}

/// Takes the limits that all ranks' hints allow. Returns whether somebody demands that calls are ours.
bool take_what_all_said(IoFile& file, const FileCard* cards) {
  bool by_force = false;
  for (int rank = 0; rank < file.size; ++rank) {
    file.limits.most_window = std::min(file.limits.most_window, cards[rank].most_window);
    file.limits.most_aggregators = std::min(file.limits.most_aggregators, static_cast<int>(cards[rank].most_aggregators));
    by_force = by_force || cards[rank].by_force != 0;
  }
  return by_force;
}

/// Finds out where the file lies, and whether every rank can open it.
void find_file(IoFile& file, const char* name, MPI_File handle, bool by_force, FileCard& mine, FileCard* cards) {
  find_nodes(file, cards);
  // One rank of each node looks what file system it is; the others open the file only if it is one that we know.
  for (const bool is_first : {true, false}) {
    if (!file.by_library && aggregates(file) == is_first) {
      open_again(file, name, by_force, mine);
      mine.block_bytes = std::max(mine.block_bytes, stripe_of(handle));
    }
    file.passed_for = agree_on_file(file, mine, cards);
  }
  if (file.by_library) {
    close_again(file);
    const bool has_opened = !by_force && open_by_library(file.librarys, name, file.amode);
    mine.passed_for = static_cast<int64_t>(has_opened ? collio::IoPassedFor::kNot : collio::IoPassedFor::kFileSystem);
    mine.block_bytes = stripe_of(handle);
    file.passed_for = agree_on_file(file, mine, cards);
  }
  const FileCard& first = cards[file.aggregators[file.node_of_rank[0]]];
  file.limits.alignment = std::max<int64_t>(first.block_bytes, 4096);
  file.drops_pages = first.in_memory == 0 && !file.by_library;
}

/// Why calls on the file cannot be ours, as far as this rank knows before it has looked at it.
collio::IoPassedFor why_not(int amode, const char* driver) {
  if (!core->io.is_wanted() || strcmp(driver, "off") == 0) {
    return collio::IoPassedFor::kAsked;
  }
  return (amode & MPI_MODE_SEQUENTIAL) != 0 ? collio::IoPassedFor::kMode : collio::IoPassedFor::kNot;
}

/// All ranks of `comm` come here with what the library's MPI_File_open said. Returns nullptr where somebody's failed, or there
/// is but one rank, whose calls are independent.
IoFile* make_file(MPI_Comm comm, const char* name, int amode, MPI_Info info, MPI_File handle, int error, bool& is_refused) {
  int size = 0;
  real.Comm_size[1](comm, &size);
  if (size <= 1) {
    return nullptr;
  }
  auto* file = new (memory_or_abort(sizeof(IoFile))) IoFile;
  file->size = size;
  real.Comm_rank[1](comm, &file->rank);
  file->amode = amode;
  // Alike on all ranks: processes of other jobs may not even be under Headroom, and would not do what follows.
  if (!direct_on || communicator_of(comm) == &left_to_library || !make_communicator(comm, *file)) {
    file->passed_for = collio::IoPassedFor::kCommunicator;
    if (error != MPI_SUCCESS) {
      drop_file(file);
      return nullptr;
    }
    return file;
  }
  note_constructor(MPI_SUCCESS, comm, kConstructorOfFiles, file->messages.comm);
  file->order = array_of<int>(size);
  FileCard mine = {core->node_place().node, error, 0, 0, 0, INT64_MAX, INT32_MAX, 0, 0};
  if (error == MPI_SUCCESS) {  // else MPI may forbid the arguments
    char driver[kHintBytes] = "";
    (void)hint_of(info, "headroom_driver", driver);
    take_ways(*file, info, hint_of);
    take_view_hint(*file, info, hint_of);
    take_limits(*file, info, mine);
    file->may_aggregate = may_aggregate(info);
    mine.by_force = strcmp(driver, "posix") == 0 ? 1 : 0;
    const bool by_library = strcmp(driver, "library") == 0 || has_prefix(name) || getenv("ROMIO_FSTYPE_FORCE") != nullptr;
    mine.by_library = by_library ? 1 : 0;
    mine.passed_for = static_cast<int64_t>(why_not(amode, driver));
  }
  auto* cards = array_of<FileCard>(size);
  file->passed_for = agree_on_file(*file, mine, cards);
  bool opened = true;
  for (int rank = 0; rank < size; ++rank) {
    opened = opened && cards[rank].error == MPI_SUCCESS;
  }
  const bool by_force = take_what_all_said(*file, cards);
  if (opened && file->passed_for == collio::IoPassedFor::kNot) {
    find_file(*file, name, handle, by_force, mine, cards);
  }
  free(cards);
  const bool passes = file->passed_for != collio::IoPassedFor::kNot;
  is_refused = opened && by_force && passes;
  if (is_refused && file->rank == 0) {
    core->io.say_not_posix(name, file->passed_for);
  }
  if (!opened || is_refused) {
    drop_file(file);
    return nullptr;
  }
  if (passes) {
    leave_to_library(*file);
  } else {
    file->openings = array_of<collio::Opening>(size);
    file->accesses = array_of<collio::NodeAccess>(file->nodes);
    file->domains = array_of<collio::Domain>(file->nodes);
  }
  add_run(file->view.tile, 0, 1);
  return file;
}

/// Whether the library's error is about the communicator, so that it cannot be used.
bool is_about_communicator(int error) {
  int kind = MPI_SUCCESS;
  return error != MPI_SUCCESS && (real.Error_class[1](error, &kind) != MPI_SUCCESS || kind == MPI_ERR_COMM);
}

}  // namespace

base::FutexLock io_files_lock;

IoFile* file_of(MPI_File handle) {
  const base::LockHolder lock(io_files_lock);
  IoFile* file = io_files;
  while (file != nullptr && file->handle != handle) {
    file = file->next;
  }
  return file;
}

bool aggregates(const IoFile& file) { return file.aggregators[file.node_of_rank[file.rank]] == file.rank; }

int serve_File_open(MPI_Comm comm, const char* filename, int amode, MPI_Info info, MPI_File* fh, Entry entry) {
  int error = MPI_SUCCESS;
  {
    const InsideLibrary inside;
    const WaysMayChange change;
    arrive_together(comm);
    const WithoutSlot waiting;
    error = real.File_open[entry](comm, filename, amode, info, fh);
  }
  if (is_about_communicator(error)) {
    return error;
  }
  bool is_refused = false;
  IoFile* file = make_file(comm, filename, amode, info, *fh, error, is_refused);
  if (is_refused) {
    const InsideLibrary inside;
    real.File_call_errhandler[1](*fh, MPI_ERR_UNSUPPORTED_OPERATION);  // its handler is that of MPI_FILE_NULL
    real.File_close[1](fh);
    return MPI_ERR_UNSUPPORTED_OPERATION;
  }
  if (file != nullptr) {
    file->handle = *fh;
    const base::LockHolder lock(io_files_lock);
    file->next = io_files;
    io_files = file;
  }
  return error;
}

int serve_File_close(MPI_File* fh, Entry entry) {
  IoFile* file = nullptr;
  {
    const base::LockHolder lock(io_files_lock);
    for (IoFile** link = &io_files; *link != nullptr; link = &(*link)->next) {
      if ((*link)->handle == *fh) {
        file = *link;
        *link = file->next;
        break;
      }
    }
  }
  int error = MPI_SUCCESS;
  arrive_together(file != nullptr ? file->messages.comm : MPI_COMM_NULL);
  {
    const InsideLibrary inside;
    const WaysMayChange change;
    const WithoutSlot waiting;
    const int of_ours =
        file != nullptr ? close_by_library(file->librarys) : MPI_SUCCESS;  // its writes that are still to come go first
    error = real.File_close[entry](fh);
    error = error == MPI_SUCCESS ? of_ours : error;
  }
  if (file != nullptr) {
    const WithoutSlot waiting;
    drop_file(file);
  }
  return error;
}

/// The file that the library writes for Headroom has to reach the disk, too.
int serve_File_sync(MPI_File fh, Entry entry) {
  const IoFile* const file = file_of(fh);
  const InsideLibrary inside;
  const WaysMayChange change;
  const WithoutSlot waiting;
  const bool is_written = file != nullptr && file->librarys != MPI_FILE_NULL;
  const int of_ours = is_written ? real.File_sync[1](file->librarys) : MPI_SUCCESS;
  const int error = real.File_sync[entry](fh);
  if (error == MPI_SUCCESS && of_ours != MPI_SUCCESS) {
    real.File_call_errhandler[1](fh, of_ours);
  }
  return error == MPI_SUCCESS ? of_ours : error;
}

/// The library's hints, and what was chosen here: for libraries that say nothing of aggregators, too.
int serve_File_get_info(MPI_File fh, MPI_Info* info_used, Entry entry) {
  const InsideLibrary inside;
  const int error = real.File_get_info[entry](fh, info_used);
  const IoFile* file = error == MPI_SUCCESS ? file_of(fh) : nullptr;
  if (file == nullptr || *info_used == MPI_INFO_NULL) {
    return error;
  }
  const bool ours = file->passed_for == collio::IoPassedFor::kNot;
  // Not by the name of a hint: a program may hand all of this to the next file that it opens.
  real.Info_set[1](*info_used, "headroom_access", !ours ? "off" : file->by_library ? "library" : "posix");
  if (ours) {
    char number[32];
    (void)snprintf(number, sizeof number, "%d", std::min(file->nodes, file->limits.most_aggregators));
    real.Info_set[1](*info_used, "cb_nodes", number);
    const long long window = file->limits.most_window;
    (void)snprintf(number, sizeof number, "%lld", 2 * window);
    real.Info_set[1](*info_used, "cb_buffer_size", number);
    const ViewHint hint = file->view_hint;
    real.Info_set[1](*info_used, "headroom_view",
                     hint == ViewHint::kNow                ? "now"
                     : hint == ViewHint::kAsLateAsPossible ? "late"
                                                           : "auto");
  }
  return error;
}

}  // namespace headroom::mpi
