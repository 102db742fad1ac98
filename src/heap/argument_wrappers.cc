// Calls whose small arguments may lie in evictable memory: paths, structures that the kernel fills in, lists of descriptors.
//
// Where the engine serves the kernel nothing need be done. Where it does not, absent memory makes such a call fail with
// EFAULT, or lose what it did (a child that is reaped while its status cannot be stored). So such arguments are held while
// the call runs; arguments elsewhere, nearly all, cost a comparison. Why not syscall user dispatch: docs/pager.md.
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heap/held_calls.h"

namespace {

using namespace headroom;

/// Keeps one argument resident while a call runs.
class HeldArgument {
 public:
  HeldArgument(const void* address, size_t bytes, bool write)
      : address_(address != nullptr && !pager::engine_serves_kernel() && heap::is_ours(address, bytes) ? address : nullptr),
        bytes_(bytes),
        write_(write) {
    if (address_ != nullptr) {
      heap::hold(address_, bytes_, write_);
    }
  }
  ~HeldArgument() {
    if (address_ != nullptr) {
      const int saved_errno = errno;
      heap::drop_hold(address_, bytes_, write_);
      errno = saved_errno;
    }
  }
  HeldArgument(const HeldArgument&) = delete;
  HeldArgument& operator=(const HeldArgument&) = delete;

 private:
  const void* address_;
  size_t bytes_;
  bool write_;
};

/// A path or another text: how long it is matters only if it is ours.
struct HeldText : HeldArgument {
  explicit HeldText(const char* text)
      : HeldArgument(text, text != nullptr && heap::is_ours(text, 1) ? strlen(text) + 1 : 1, false) {}
};

template <typename T>
struct HeldOut : HeldArgument {
  explicit HeldOut(T* out, size_t count = 1) : HeldArgument(out, count * sizeof(T), true) {}
};

/// What ioctl()'s third argument points to, if it is a pointer, is known to the device alone.
constexpr size_t kUnknownBytes = 4096;

/// The mode that open() takes when it may create a file.
mode_t mode_of(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

HEADROOM_REAL(stat);
HEADROOM_REAL(lstat);
HEADROOM_REAL(fstat);
HEADROOM_REAL(fstatat);
HEADROOM_REAL(statx);
HEADROOM_REAL(open);
HEADROOM_REAL(openat);
HEADROOM_REAL(fopen);
HEADROOM_REAL(opendir);
HEADROOM_REAL(access);
HEADROOM_REAL(mkdir);
HEADROOM_REAL(unlink);
HEADROOM_REAL(rename);
HEADROOM_REAL(readlink);
HEADROOM_REAL(getrandom);
HEADROOM_REAL(poll);
HEADROOM_REAL(ppoll);
HEADROOM_REAL(select);
HEADROOM_REAL(epoll_wait);
HEADROOM_REAL(waitpid);
HEADROOM_REAL(ioctl);
HEADROOM_REAL(getsockopt);
HEADROOM_REAL(setsockopt);

}  // namespace

HEADROOM_EXPORT int stat(const char* path, struct stat* out) noexcept {
  const HeldText text(path);
  const HeldOut held(out);
  return real_stat.get()(path, out);
}
HEADROOM_EXPORT int stat64(const char* path, struct stat64* out) noexcept {
  return stat(path, reinterpret_cast<struct stat*>(out));
}
HEADROOM_EXPORT int lstat(const char* path, struct stat* out) noexcept {
  const HeldText text(path);
  const HeldOut held(out);
  return real_lstat.get()(path, out);
}
HEADROOM_EXPORT int lstat64(const char* path, struct stat64* out) noexcept {
  return lstat(path, reinterpret_cast<struct stat*>(out));
}
HEADROOM_EXPORT int fstat(int file, struct stat* out) noexcept {
  const HeldOut held(out);
  return real_fstat.get()(file, out);
}
HEADROOM_EXPORT int fstat64(int file, struct stat64* out) noexcept { return fstat(file, reinterpret_cast<struct stat*>(out)); }
HEADROOM_EXPORT int fstatat(int directory, const char* path, struct stat* out, int flags) noexcept {
  const HeldText text(path);
  const HeldOut held(out);
  return real_fstatat.get()(directory, path, out, flags);
}
HEADROOM_EXPORT int fstatat64(int directory, const char* path, struct stat64* out, int flags) noexcept {
  return fstatat(directory, path, reinterpret_cast<struct stat*>(out), flags);
}
HEADROOM_EXPORT int statx(int directory, const char* path, int flags, unsigned mask, struct statx* out) noexcept {
  const HeldText text(path);
  const HeldOut held(out);
  return real_statx.get()(directory, path, flags, mask, out);
}

HEADROOM_EXPORT int open(const char* path, int flags, ...) {
  const HeldText text(path);
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return real_open.get()(path, flags, mode);
}
HEADROOM_EXPORT int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open(path, flags | O_LARGEFILE, mode);
}
HEADROOM_EXPORT int openat(int directory, const char* path, int flags, ...) {
  const HeldText text(path);
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return real_openat.get()(directory, path, flags, mode);
}
HEADROOM_EXPORT int openat64(int directory, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return openat(directory, path, flags | O_LARGEFILE, mode);
}
HEADROOM_EXPORT FILE* fopen(const char* path, const char* mode) {
  const HeldText text(path);
  return real_fopen.get()(path, mode);
}
HEADROOM_EXPORT FILE* fopen64(const char* path, const char* mode) { return fopen(path, mode); }
HEADROOM_EXPORT DIR* opendir(const char* path) {
  const HeldText text(path);
  return real_opendir.get()(path);
}
HEADROOM_EXPORT int access(const char* path, int mode) noexcept {
  const HeldText text(path);
  return real_access.get()(path, mode);
}
HEADROOM_EXPORT int mkdir(const char* path, mode_t mode) noexcept {
  const HeldText text(path);
  return real_mkdir.get()(path, mode);
}
HEADROOM_EXPORT int unlink(const char* path) noexcept {
  const HeldText text(path);
  return real_unlink.get()(path);
}
HEADROOM_EXPORT int rename(const char* from, const char* to) noexcept {
  const HeldText text(from);
  const HeldText other(to);
  return real_rename.get()(from, to);
}
HEADROOM_EXPORT ssize_t readlink(const char* path, char* out, size_t bytes) noexcept {
  const HeldText text(path);
  const HeldOut held(out, bytes);
  return real_readlink.get()(path, out, bytes);
}

HEADROOM_EXPORT ssize_t getrandom(void* buffer, size_t bytes, unsigned flags) {
  if (!heap::is_ours(buffer, bytes)) {
    return real_getrandom.get()(buffer, bytes, flags);
  }
  return heap::in_pieces(buffer, bytes, true,
                         [=](char* at, size_t piece, size_t) { return real_getrandom.get()(at, piece, flags); });
}

HEADROOM_EXPORT int poll(pollfd* files, nfds_t count, int timeout) {
  const HeldOut held(files, count);
  return real_poll.get()(files, count, timeout);
}
HEADROOM_EXPORT int ppoll(pollfd* files, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  const HeldOut held(files, count);
  return real_ppoll.get()(files, count, timeout, mask);
}
HEADROOM_EXPORT int select(int count, fd_set* in, fd_set* out, fd_set* other, timeval* timeout) {
  const HeldOut held_in(in);
  const HeldOut held_out(out);
  const HeldOut held_other(other);
  const HeldOut held_timeout(timeout);
  return real_select.get()(count, in, out, other, timeout);
}
HEADROOM_EXPORT int epoll_wait(int file, epoll_event* events, int most, int timeout) {
  const HeldOut held(events, most > 0 ? static_cast<size_t>(most) : 0);
  return real_epoll_wait.get()(file, events, most, timeout);
}
HEADROOM_EXPORT pid_t waitpid(pid_t pid, int* status, int options) {
  const HeldOut held(status);
  return real_waitpid.get()(pid, status, options);
}
HEADROOM_EXPORT pid_t wait(int* status) { return waitpid(-1, status, 0); }

HEADROOM_EXPORT int ioctl(int file, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  const HeldArgument held(argument, kUnknownBytes, true);
  return real_ioctl.get()(file, request, argument);
}
HEADROOM_EXPORT int getsockopt(int socket, int level, int name, void* value, socklen_t* bytes) noexcept {
  const HeldArgument held(value, bytes != nullptr ? *bytes : 0, true);
  const HeldOut held_bytes(bytes);
  return real_getsockopt.get()(socket, level, name, value, bytes);
}
HEADROOM_EXPORT int setsockopt(int socket, int level, int name, const void* value, socklen_t bytes) noexcept {
  const HeldArgument held(value, bytes, false);
  return real_setsockopt.get()(socket, level, name, value, bytes);
}
