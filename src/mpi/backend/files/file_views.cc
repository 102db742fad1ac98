// See file_views.h.
#include "mpi/backend/files/file_views.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/system_calls.h"
#include "collio/functions.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/files/file_hints.h"
#include "mpi/backend/files/file_messages.h"
#include "mpi/backend/files/files.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/messages/network.h"
#include "mpi/backend/messages/request_contents.h"
#include "mpi/backend/objects/datatypes.h"
#include "mpi/services.h"

namespace headroom::mpi {
namespace {

constexpr int64_t kMostPiecesGiven = 64 << 10;

/// Takes a view apart.
void describe_view(FileView& view, MPI_Offset origin, MPI_Datatype element, MPI_Datatype tile, const char* representation) {
  const InsideLibrary inside;
  MPI_Count bytes = 0;
  real.Type_size_x[1](tile, &bytes);
  view.tile_bytes = bytes;
  real.Type_size_x[1](element, &bytes);
  view.element_bytes = bytes;
  view.extent = extent_of(tile);
  view.origin = origin;
  if (strcmp(representation, "native") != 0 && strcmp(representation, "internal") != 0) {
    view.passed_for = collio::IoPassedFor::kRepresentation;
  } else if (view.tile_bytes <= 0 || view.element_bytes <= 0 || origin < 0 || !flatten(tile, view.tile) ||
             !core->io.end_pattern(view.tile, view.extent)) {
    view.passed_for = collio::IoPassedFor::kDatatypes;
    make_empty(view.tile);
  }
}

/// A datatype of so many bytes, without gaps.
class PlainElement {
 public:
  explicit PlainElement(int64_t bytes) {
    real.Type_contiguous[1](static_cast<int>(bytes), MPI_BYTE, &type_);
    real.Type_commit[1](&type_);
  }
  ~PlainElement() { real.Type_free[1](&type_); }
  PlainElement(const PlainElement&) = delete;
  PlainElement& operator=(const PlainElement&) = delete;
  [[nodiscard]] MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

/// A copy that can be kept, and need not where the datatype is MPI's own. Not by MPI_Type_dup, which would call the copy
/// functions of the program's attributes.
MPI_Datatype copy_of(MPI_Datatype datatype) {
  Form form;
  if (!form_of(datatype, form) || is_predefined(form)) {
    return datatype;
  }
  MPI_Datatype copy = MPI_DATATYPE_NULL;
  real.Type_contiguous[1](1, datatype, &copy);
  real.Type_commit[1](&copy);
  return copy;
}

/// Whether accesses to the view can be described here, whatever their place, so that the library need not have it.
bool may_be_withheld(const FileView& view) {
  collio::Opening opening;
  int64_t bytes = 0;
  return view.passed_for == collio::IoPassedFor::kNot && view.element_bytes <= INT32_MAX &&
         view.tile_bytes % view.element_bytes == 0 && !__builtin_mul_overflow(view.tile_bytes, 2, &bytes) &&
         core->io.describe(view.tile, view.origin, view.extent, 0, bytes, opening);
}

/// Agrees with the others on whether the view is withheld: where one rank's is large, and nothing is against it on any.
bool agree_to_withhold(IoFile& file, const FileView& view) {
  int is_atomic = 0;
  {
    const InsideLibrary inside;
    real.File_get_atomicity[1](file.handle, &is_atomic);
  }
  const bool may = is_atomic == 0 && file.view_hint != ViewHint::kNow && may_be_withheld(view);
  const bool wants = may && (file.view_hint == ViewHint::kAsLateAsPossible || core->io.pieces_of(view.tile) > kMostPiecesGiven);
  const int64_t said[2] = {wants ? 1 : 0, may ? 0 : 1};
  int64_t agreed[2] = {};
  const WaitsForFile waits;
  share_largest(file.messages, said, agreed, 2);
  return agreed[0] != 0 && agreed[1] == 0;
}

/// MPI_File_set_view of a file whose collective calls are ours.
template <typename SetView>
int set_view_of_ours(IoFile& file, MPI_Offset origin, MPI_Datatype element, MPI_Datatype tile, const char* representation,
                     MPI_Info info, SetView set_view) {
  FileView view;
  if (element == MPI_DATATYPE_NULL || tile == MPI_DATATYPE_NULL || representation == nullptr) {
    view.passed_for = collio::IoPassedFor::kDatatypes;  // the library says that it is forbidden
  } else {
    describe_view(view, origin, element, tile, representation);
  }
  take_view_hint(file, info, hint_in);
  const bool withholds = agree_to_withhold(file, view) && representation != nullptr;  // else no rank may withhold it
  const InsideLibrary inside;
  int error = MPI_SUCCESS;
  if (withholds) {
    const PlainElement plain(view.element_bytes);
    error = set_view(MPI_Offset{0}, plain.get(), plain.get(), "native");
  } else {
    error = set_view(origin, element, tile, representation);
  }
  if (error != MPI_SUCCESS) {
    return error;
  }
  const base::LockHolder lock(file.view_lock);
  drop_withheld_view(file);
  if (withholds) {
    file.withholds = true;
    file.withheld = {copy_of(element), copy_of(tile), strcmp(representation, "internal") == 0 ? "internal" : "native"};
    core->io.count_withheld();
  }
  take_ways(file, info, hint_in);
  file.view.tile_bytes = view.tile_bytes;
  file.view.extent = view.extent;
  file.view.origin = view.origin;
  file.view.element_bytes = view.element_bytes;
  file.view.passed_for = view.passed_for;
  std::swap(static_cast<collio::Pattern&>(file.view.tile), static_cast<collio::Pattern&>(view.tile));
  return MPI_SUCCESS;
}

/// Sets the library's view; the position stays.
int set_withheld_view(IoFile& file) {
  const base::LockHolder lock(file.view_lock);
  const InsideLibrary inside;
  const WaysMayChange change;
  const WithoutSlot waiting;
  MPI_Offset position = 0;
  real.File_get_position[1](file.handle, &position);
  const int error = real.File_set_view[1](file.handle, file.view.origin, file.withheld.element, file.withheld.tile,
                                          file.withheld.representation, MPI_INFO_NULL);
  real.File_seek[1](file.handle, position, MPI_SEEK_SET);
  return error;
}

/// Holds the lock of a file's view, if there is a file.
class LockOfView {
 public:
  explicit LockOfView(IoFile* file) : lock_(file != nullptr ? file->view_lock : unused_, file != nullptr) {}

 private:
  base::FutexLock unused_;
  base::LockHolder lock_;
};

/// How many elements of a withheld view the file has, the last of them perhaps in part; false if they cannot be counted.
bool elements_in_file(const IoFile& file, int64_t& elements) {
  const FileView& view = file.view;
  MPI_Offset size = 0;
  real.File_get_size[1](file.handle, &size);
  const int64_t tiles = size > view.origin ? (size - view.origin) / std::max<int64_t>(view.extent, 1) + 1 : 0;
  int64_t bytes = 0;
  collio::Opening all;
  if (__builtin_mul_overflow(tiles, view.tile_bytes, &bytes) ||
      !core->io.describe(view.tile, view.origin, view.extent, 0, bytes, all)) {
    return false;
  }
  const int64_t there =
      bytes > 0 ? core->io.bytes_before(all, {view.tile.list, view.origin, view.extent}, static_cast<int64_t>(size)) : 0;
  elements = (there + view.element_bytes - 1) / view.element_bytes;
  return true;
}

}  // namespace

void drop_copy(MPI_Datatype& copy) {
  Form form;
  if (copy != MPI_DATATYPE_NULL && form_of(copy, form) && !is_predefined(form)) {
    real.Type_free[1](&copy);
  }
  copy = MPI_DATATYPE_NULL;
}

void drop_withheld_view(IoFile& file) {
  const InsideLibrary inside;
  drop_copy(file.withheld.element);
  drop_copy(file.withheld.tile);
  file.withholds = false;
}

int serve_File_set_view(MPI_File fh, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype, const char* datarep,
                        MPI_Info info, Entry entry) {
  IoFile* const file = file_of(fh);
  const auto set_view = [&](MPI_Offset origin, MPI_Datatype element, MPI_Datatype tile, const char* representation) {
    const InsideLibrary inside;
    const WaysMayChange change;
    const WithoutSlot waiting;
    return real.File_set_view[entry](fh, origin, element, tile, representation, info);
  };
  arrive_together(file != nullptr ? file->messages.comm : MPI_COMM_NULL);
  return file != nullptr && file->passed_for == collio::IoPassedFor::kNot
             ? set_view_of_ours(*file, disp, etype, filetype, datarep, info, set_view)
             : set_view(disp, etype, filetype, datarep);
}

int give_view(IoFile& file) {
  if (!file.withholds) {
    return MPI_SUCCESS;
  }
  const WaitsForFile waits;
  int64_t said = 0;
  int64_t agreed = 0;
  share_largest(file.messages, &said, &agreed, 1);  // so that all are here, and the library's call waits for nobody
  const int error = set_withheld_view(file);
  said = error != MPI_SUCCESS ? 1 : 0;
  share_largest(file.messages, &said, &agreed, 1);
  if (agreed != 0) {
    return error != MPI_SUCCESS ? error : MPI_ERR_OTHER;
  }
  const base::LockHolder lock(file.view_lock);
  drop_withheld_view(file);
  core->io.count_given();
  return MPI_SUCCESS;
}

int give_view_of(MPI_File handle) {
  IoFile* const file = file_of(handle);
  return file != nullptr ? give_view(*file) : MPI_SUCCESS;
}

bool refuses_shared(MPI_File handle, MPI_Status* status) {
  const IoFile* const file = file_of(handle);
  if (file == nullptr || !file->withholds) {
    return false;
  }
  set_empty_status(status);
  core->io.say_no_shared();
  const InsideLibrary inside;
  real.File_call_errhandler[1](handle, MPI_ERR_UNSUPPORTED_OPERATION);
  return true;
}

bool refuses_shared(MPI_File handle, MPI_Request* request) {
  const bool refuses = refuses_shared(handle, MPI_STATUS_IGNORE);
  *request = refuses ? MPI_REQUEST_NULL : *request;
  return refuses;
}

int serve_File_seek(MPI_File fh, MPI_Offset offset, int whence, Entry entry) {
  IoFile* const file = file_of(fh);
  const InsideLibrary inside;
  if (file == nullptr) {
    return real.File_seek[entry](fh, offset, whence);
  }
  {
    const base::LockHolder lock(file->view_lock);
    int64_t elements = 0;
    if (!file->withholds || whence != MPI_SEEK_END) {
      return real.File_seek[entry](fh, offset, whence);
    }
    if (elements_in_file(*file, elements)) {
      return real.File_seek[entry](fh, elements + offset, MPI_SEEK_SET);
    }
  }
  real.File_call_errhandler[1](fh, MPI_ERR_ARG);
  return MPI_ERR_ARG;
}

int serve_File_get_byte_offset(MPI_File fh, MPI_Offset offset, MPI_Offset* disp, Entry entry) {
  IoFile* const file = file_of(fh);
  const InsideLibrary inside;
  const LockOfView lock(file);
  const int error = real.File_get_byte_offset[entry](fh, offset, disp);
  int64_t skip = 0;
  collio::Opening opening;
  if (error == MPI_SUCCESS && file != nullptr && file->withholds &&
      !__builtin_mul_overflow(offset, file->view.element_bytes, &skip) &&
      core->io.describe(file->view.tile, file->view.origin, file->view.extent, skip, 1, opening)) {
    *disp = opening.first;
  }
  return error;
}

int serve_File_get_view(MPI_File fh, MPI_Offset* disp, MPI_Datatype* etype, MPI_Datatype* filetype, char* datarep,
                        Entry entry) {
  IoFile* const file = file_of(fh);
  const InsideLibrary inside;
  const LockOfView lock(file);
  const int error = real.File_get_view[entry](fh, disp, etype, filetype, datarep);
  if (error == MPI_SUCCESS && file != nullptr && file->withholds) {
    drop_copy(*etype);
    drop_copy(*filetype);
    *disp = file->view.origin;
    *etype = copy_of(file->withheld.element);
    *filetype = copy_of(file->withheld.tile);
    strcpy(datarep, file->withheld.representation);
  }
  return error;
}

}  // namespace headroom::mpi
