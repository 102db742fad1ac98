// See file_access.h.
#include "collio/file_access.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>

#include "base/system_calls.h"

namespace headroom::collio {
namespace {

using base::system_call;

constexpr int64_t kGpfs = 0x47504653;  // not in the kernel's headers
constexpr int64_t kBeeGfs = 0x19830326;
constexpr int64_t kLustre = 0x0bd00bd0;
constexpr int64_t kZfs = 0x2fc12fc1;

// Through the C library's names, which are Headroom's: memory of the program's may be on storage, and must be there meanwhile.

int64_t read_all(const FileAccess& file, char* to, int64_t bytes, int64_t position) {
  int64_t done = 0;
  while (done < bytes) {
    const ssize_t got = pread(file.descriptor, to + done, static_cast<size_t>(bytes - done), position + done);
    if (got < 0 && errno != EINTR) {
      return -errno;
    }
    if (got == 0) {
      break;
    }
    done += std::max<int64_t>(got, 0);
  }
  return done;
}

int write_all(const FileAccess& file, const char* from, int64_t bytes, int64_t position) {
  int64_t done = 0;
  while (done < bytes) {
    const ssize_t written = pwrite(file.descriptor, from + done, static_cast<size_t>(bytes - done), position + done);
    if (written == 0 || (written < 0 && errno != EINTR)) {
      return written == 0 ? ENOSPC : errno;
    }
    done += std::max<int64_t>(written, 0);
  }
  return 0;
}

void push(const FileAccess& file, int64_t position, int64_t bytes) {
  (void)system_call(SYS_sync_file_range, file.descriptor, position, bytes, SYNC_FILE_RANGE_WRITE);
}

int drop(const FileAccess& file, int64_t position, int64_t bytes) {
  const long error = system_call(SYS_sync_file_range, file.descriptor, position, bytes,
                                 SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  (void)system_call(SYS_fadvise64, file.descriptor, position, bytes, POSIX_FADV_DONTNEED);
  return base::is_error(error) && (error == -EIO || error == -ENOSPC || error == -EDQUOT) ? static_cast<int>(-error) : 0;
}

/// Locks of the open file: those of the process would be gone with any descriptor of the file that it closes.
void set_lock(const FileAccess& file, int64_t position, int64_t bytes, short kind) {
  struct flock range = {};
  range.l_type = kind;
  range.l_whence = SEEK_SET;
  range.l_start = position;
  range.l_len = bytes;
  // Where a file system has no locks it goes without.
  while (system_call(SYS_fcntl, file.descriptor, kind == F_UNLCK ? F_OFD_SETLK : F_OFD_SETLKW, &range) == -EINTR) {
  }
}

void lock(const FileAccess& file, int64_t position, int64_t bytes) { set_lock(file, position, bytes, F_WRLCK); }
void unlock(const FileAccess& file, int64_t position, int64_t bytes) { set_lock(file, position, bytes, F_UNLCK); }

}  // namespace

FileAccess posix_file(int descriptor) {
  FileAccess file = {};
  file.read = read_all;
  file.write = write_all;
  file.push = push;
  file.drop = drop;
  file.lock = lock;
  file.unlock = unlock;
  file.descriptor = descriptor;
  return file;
}

void limit_read_ahead(int descriptor, bool limited) {
  (void)system_call(SYS_fadvise64, descriptor, 0, 0, limited ? POSIX_FADV_RANDOM : POSIX_FADV_NORMAL);
}

FileSystem file_system_of(int descriptor, int64_t& block_bytes) {
  struct statfs64 about = {};
  if (base::is_error(system_call(SYS_fstatfs, descriptor, &about))) {
    return FileSystem::kOther;
  }
  block_bytes = about.f_bsize > 0 ? about.f_bsize : 4096;
  switch (static_cast<int64_t>(static_cast<uint32_t>(about.f_type))) {
    case EXT4_SUPER_MAGIC:
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:
    case kZfs:
      return FileSystem::kLocal;
    case TMPFS_MAGIC:
    case RAMFS_MAGIC:
      return FileSystem::kMemory;
    case kGpfs:
    case kBeeGfs:
      return FileSystem::kParallel;
    case kLustre: {
      struct stat status = {};
      if (fstat(descriptor, &status) == 0) {
        block_bytes = std::max<int64_t>(block_bytes, status.st_blksize);
      }
      return FileSystem::kParallel;
    }
    default:
      return FileSystem::kOther;
  }
}

}  // namespace headroom::collio
