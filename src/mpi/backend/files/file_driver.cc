// See file_driver.h.
#include "mpi/backend/files/file_driver.h"

#include <errno.h>

#include <algorithm>
#include <cstdint>

#include "collio/functions.h"
#include "mpi/backend/guards.h"

namespace headroom::mpi {
namespace {

/// The kernel's error that an error of the library's most likely was.
int kernel_error_of(int error) {
  int kind = MPI_ERR_OTHER;
  real.Error_class[1](error, &kind);
  return kind == MPI_ERR_NO_SPACE    ? ENOSPC
         : kind == MPI_ERR_QUOTA     ? EDQUOT
         : kind == MPI_ERR_ACCESS    ? EACCES
         : kind == MPI_ERR_READ_ONLY ? EROFS
         : kind == MPI_ERR_NO_MEM    ? ENOMEM
                                     : EIO;
}

constexpr int64_t kMostAtOnce = int64_t{1} << 30;

int64_t read_by_library(const collio::FileAccess& file, char* to, int64_t bytes, int64_t position) {
  const InsideLibrary inside;
  for (int64_t done = 0; done < bytes;) {
    const auto part = static_cast<int>(std::min(bytes - done, kMostAtOnce));
    MPI_Status status;
    const int error =
        real.File_read_at[1](*static_cast<MPI_File*>(file.context), position + done, to + done, part, MPI_BYTE, &status);
    if (error != MPI_SUCCESS) {
      return -kernel_error_of(error);
    }
    int got = 0;
    real.Get_count[1](&status, MPI_BYTE, &got);
    if (got <= 0) {
      return done;
    }
    done += got;
  }
  return bytes;
}

int write_by_library(const collio::FileAccess& file, const char* from, int64_t bytes, int64_t position) {
  const InsideLibrary inside;
  for (int64_t done = 0; done < bytes;) {
    const auto part = static_cast<int>(std::min(bytes - done, kMostAtOnce));
    MPI_Status status;
    const int error =
        real.File_write_at[1](*static_cast<MPI_File*>(file.context), position + done, from + done, part, MPI_BYTE, &status);
    if (error != MPI_SUCCESS) {
      return kernel_error_of(error);
    }
    int written = 0;
    real.Get_count[1](&status, MPI_BYTE, &written);
    if (written <= 0) {
      return ENOSPC;
    }
    done += written;
  }
  return 0;
}

}  // namespace

bool open_by_library(MPI_File& file, const char* name, int amode) {
  const InsideLibrary inside;
  const WithoutSlot waiting;
  const int access = (amode & MPI_MODE_RDONLY) != 0 ? MPI_MODE_RDONLY : MPI_MODE_RDWR;  // holes are read
  // The program's handler of errors in opening is not to hear of a file that the program does not open.
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  real.File_get_errhandler[1](MPI_FILE_NULL, &handler);
  real.File_set_errhandler[1](MPI_FILE_NULL, MPI_ERRORS_RETURN);
  const int error = real.File_open[1](MPI_COMM_SELF, name, access, MPI_INFO_NULL, &file);
  real.File_set_errhandler[1](MPI_FILE_NULL, handler);
  real.Errhandler_free[1](&handler);
  if (error != MPI_SUCCESS) {
    file = MPI_FILE_NULL;
    return false;
  }
  real.File_set_errhandler[1](file, MPI_ERRORS_RETURN);
  return true;
}

int close_by_library(MPI_File& file) {
  if (file == MPI_FILE_NULL) {
    return MPI_SUCCESS;
  }
  const InsideLibrary inside;
  return real.File_close[1](&file);
}

collio::FileAccess library_file(MPI_File& file) {
  collio::FileAccess access = {};
  access.read = read_by_library;
  access.write = write_by_library;
  access.push = [](const collio::FileAccess&, int64_t, int64_t) {};
  access.drop = [](const collio::FileAccess&, int64_t, int64_t) { return 0; };
  access.lock = [](const collio::FileAccess&, int64_t, int64_t) {};
  access.unlock = access.lock;
  access.context = &file;
  access.wants_its_rank = true;
  return access;
}

}  // namespace headroom::mpi
