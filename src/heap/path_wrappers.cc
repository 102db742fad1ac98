// Calls that are given a path, or two; the path may lie in evictable memory, see held_arguments.h.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "heap/held_arguments.h"

namespace {
using headroom::heap::HeldArgument;
using headroom::heap::HeldOut;
using headroom::heap::HeldText;
}  // namespace

/// A function whose parameter `path` is all that may be ours.
#define HEADROOM_TAKES_PATH(result, name, parameters, arguments, ...) \
  HEADROOM_REAL(name);                                                \
  HEADROOM_EXPORT result name parameters __VA_ARGS__ {                \
    const HeldText text(path);                                        \
    return real_##name.get() arguments;                               \
  }
/// One whose parameters `from` and `to` are.
#define HEADROOM_TAKES_PATHS(result, name, parameters, arguments) \
  HEADROOM_REAL(name);                                            \
  HEADROOM_EXPORT result name parameters noexcept {               \
    const HeldText text(from);                                    \
    const HeldText other(to);                                     \
    return real_##name.get() arguments;                           \
  }

HEADROOM_TAKES_PATH(DIR*, opendir, (const char* path), (path))
HEADROOM_TAKES_PATH(int, creat, (const char* path, mode_t mode), (path, mode))
HEADROOM_TAKES_PATH(int, creat64, (const char* path, mode_t mode), (path, mode))
HEADROOM_TAKES_PATH(int, access, (const char* path, int mode), (path, mode), noexcept)
HEADROOM_TAKES_PATH(int, faccessat, (int directory, const char* path, int mode, int flags), (directory, path, mode, flags),
                    noexcept)
HEADROOM_TAKES_PATH(int, mkdir, (const char* path, mode_t mode), (path, mode), noexcept)
HEADROOM_TAKES_PATH(int, mkdirat, (int directory, const char* path, mode_t mode), (directory, path, mode), noexcept)
HEADROOM_TAKES_PATH(int, mkfifo, (const char* path, mode_t mode), (path, mode), noexcept)
HEADROOM_TAKES_PATH(int, rmdir, (const char* path), (path), noexcept)
HEADROOM_TAKES_PATH(int, unlink, (const char* path), (path), noexcept)
HEADROOM_TAKES_PATH(int, unlinkat, (int directory, const char* path, int flags), (directory, path, flags), noexcept)
HEADROOM_TAKES_PATH(int, remove, (const char* path), (path), noexcept)
HEADROOM_TAKES_PATH(int, chdir, (const char* path), (path), noexcept)
HEADROOM_TAKES_PATH(int, chmod, (const char* path, mode_t mode), (path, mode), noexcept)
HEADROOM_TAKES_PATH(int, fchmodat, (int directory, const char* path, mode_t mode, int flags), (directory, path, mode, flags),
                    noexcept)
HEADROOM_TAKES_PATH(int, chown, (const char* path, uid_t user, gid_t group), (path, user, group), noexcept)
HEADROOM_TAKES_PATH(int, truncate, (const char* path, off_t bytes), (path, bytes), noexcept)
HEADROOM_TAKES_PATH(int, truncate64, (const char* path, off64_t bytes), (path, bytes), noexcept)
HEADROOM_TAKES_PATH(int, statvfs, (const char* path, struct statvfs* out), (path, out), noexcept)
HEADROOM_TAKES_PATH(int, statvfs64, (const char* path, struct statvfs64* out), (path, out), noexcept)
HEADROOM_TAKES_PATHS(int, rename, (const char* from, const char* to), (from, to))
HEADROOM_TAKES_PATHS(int, renameat, (int from_directory, const char* from, int to_directory, const char* to),
                     (from_directory, from, to_directory, to))
HEADROOM_TAKES_PATHS(int, link, (const char* from, const char* to), (from, to))
HEADROOM_TAKES_PATHS(int, symlink, (const char* from, const char* to), (from, to))

// The C library makes the name in it, and opens it.
HEADROOM_TAKES_PATH(int, mkstemp, (char* path), (path))
HEADROOM_TAKES_PATH(int, mkstemp64, (char* path), (path))
HEADROOM_TAKES_PATH(int, mkostemp, (char* path, int flags), (path, flags))
HEADROOM_TAKES_PATH(int, mkstemps, (char* path, int suffix), (path, suffix))
HEADROOM_TAKES_PATH(char*, mkdtemp, (char* path), (path), noexcept)

HEADROOM_REAL(freopen);
HEADROOM_EXPORT FILE* freopen(const char* path, const char* mode, FILE* stream) {
  const HeldText text(path);
  return real_freopen.get()(path, mode, stream);
}
HEADROOM_EXPORT FILE* freopen64(const char* path, const char* mode, FILE* stream) { return freopen(path, mode, stream); }

HEADROOM_REAL(readlink);
HEADROOM_EXPORT ssize_t readlink(const char* path, char* out, size_t bytes) noexcept {
  const HeldText text(path);
  const HeldArgument held(out, bytes, true);
  return real_readlink.get()(path, out, bytes);
}
HEADROOM_REAL(readlinkat);
HEADROOM_EXPORT ssize_t readlinkat(int directory, const char* path, char* out, size_t bytes) noexcept {
  const HeldText text(path);
  const HeldArgument held(out, bytes, true);
  return real_readlinkat.get()(directory, path, out, bytes);
}
HEADROOM_REAL(realpath);
HEADROOM_EXPORT char* realpath(const char* path, char* out) noexcept {
  const HeldText text(path);
  const HeldArgument held(out, PATH_MAX, true);
  return real_realpath.get()(path, out);
}
HEADROOM_REAL(getcwd);
HEADROOM_EXPORT char* getcwd(char* out, size_t bytes) noexcept {
  const HeldArgument held(out, bytes, true);
  return real_getcwd.get()(out, bytes);
}
HEADROOM_REAL(statfs);
HEADROOM_EXPORT int statfs(const char* path, struct statfs* out) noexcept {
  const HeldText text(path);
  const HeldOut held(out);
  return real_statfs.get()(path, out);
}
HEADROOM_EXPORT int statfs64(const char* path, struct statfs64* out) noexcept {
  return statfs(path, reinterpret_cast<struct statfs*>(out));
}
HEADROOM_REAL(fstatfs);
HEADROOM_EXPORT int fstatfs(int file, struct statfs* out) noexcept {
  const HeldOut held(out);
  return real_fstatfs.get()(file, out);
}
HEADROOM_EXPORT int fstatfs64(int file, struct statfs64* out) noexcept {
  return fstatfs(file, reinterpret_cast<struct statfs*>(out));
}
HEADROOM_REAL(utimensat);
HEADROOM_EXPORT int utimensat(int directory, const char* path, const timespec times[2], int flags) noexcept {
  const HeldText text(path);
  const HeldArgument held(times, 2 * sizeof(timespec), false);
  return real_utimensat.get()(directory, path, times, flags);
}
