// Calls whose small arguments may lie in evictable memory: files' status, lists of descriptors, children's status, options; see
// held_arguments.h. More of them: path_wrappers.cc, structure_wrappers.cc.
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/kernel_abi.h"
#include "base/log.h"
#include "heap/held_arguments.h"
#include "pager/pager.h"

extern "C" {  // not declared by newer headers
int __xstat(int version, const char* path, struct stat* out) noexcept;
int __lxstat(int version, const char* path, struct stat* out) noexcept;
int __fxstat(int version, int file, struct stat* out) noexcept;
int __fxstatat(int version, int directory, const char* path, struct stat* out, int flags) noexcept;
}

namespace {

using namespace headroom;
using heap::HeldArgument;
using heap::HeldOut;
using heap::HeldText;

/// How much ioctl()'s third argument points to, if it is a pointer: many requests say so, else to the end of its page.
size_t request_bytes(unsigned long request, const void* argument) {
  const size_t said = _IOC_SIZE(request);
  return said != 0 ? said : arena::kPageBytes - reinterpret_cast<uintptr_t>(argument) % arena::kPageBytes;
}

/// True, with a warning, if a userfaultfd of the program's, or of a library's, is to watch memory that may move. It would miss
/// the faults that it waits for: pages are there that it has not filled. The kernel gives the same answer where another one
/// watches.
bool refuse_to_watch(unsigned long request, const void* argument) {
  if (static_cast<uint32_t>(request) != static_cast<uint32_t>(UFFDIO_REGISTER) || argument == nullptr) {
    return false;
  }
  const auto* wanted = static_cast<const uffdio_register*>(argument);
  if (!heap::is_ours(reinterpret_cast<const void*>(wanted->range.start), wanted->range.len)) {
    return false;
  }
  static std::atomic<bool> said{false};
  if (!said.exchange(true, std::memory_order_relaxed)) {
    base::log_warning(
        "a userfaultfd of the program's own, or of a library's, is to watch %llu MiB of memory that may be moved to storage: "
        "that is refused (EBUSY). Raise --large above the size of that allocation, or run the program without Headroom",
        static_cast<unsigned long long>(wanted->range.len >> 20));
  }
  return true;
}

/// The mode that open() takes when it may create a file.
mode_t mode_of(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

HEADROOM_REAL(stat);
HEADROOM_REAL(lstat);
HEADROOM_REAL(fstat);
HEADROOM_REAL(fstatat);
HEADROOM_REAL(__xstat);
HEADROOM_REAL(__lxstat);
HEADROOM_REAL(__fxstat);
HEADROOM_REAL(__fxstatat);
HEADROOM_REAL(statx);
HEADROOM_REAL(open);
HEADROOM_REAL(openat);
HEADROOM_REAL(fopen);
HEADROOM_REAL(getrandom);
HEADROOM_REAL(poll);
HEADROOM_REAL(ppoll);
HEADROOM_REAL(select);
HEADROOM_REAL(epoll_wait);
HEADROOM_REAL(waitpid);
HEADROOM_REAL(wait4);
HEADROOM_REAL(waitid);
HEADROOM_REAL(ioctl);
HEADROOM_REAL(getsockopt);
HEADROOM_REAL(setsockopt);

// Before glibc 2.33 the C library has these functions of the stat family under other names alone, and each program a stat() of
// its own that calls them. (One of the two names is found; it is known from the beginning which.)
#if defined(__x86_64__)
constexpr int kStatVersion = 1;  // _STAT_VER of its headers: the structure as the kernel has it
#else
constexpr int kStatVersion = 0;
#endif

template <typename New, typename Old, typename... Arguments>
int call_stat(New& function, Old& before, Arguments... arguments) {
  if (function.was_found() || (!before.was_found() && function.get() != nullptr)) {
    return function.get()(arguments...);
  }
  return before.get()(kStatVersion, arguments...);
}

}  // namespace

HEADROOM_EXPORT int stat(const char* path, struct stat* out) noexcept {
  const HeldText text(path);
  const HeldOut held(out);
  return call_stat(real_stat, real___xstat, path, out);
}
HEADROOM_EXPORT int stat64(const char* path, struct stat64* out) noexcept {
  return stat(path, reinterpret_cast<struct stat*>(out));
}
HEADROOM_EXPORT int lstat(const char* path, struct stat* out) noexcept {
  const HeldText text(path);
  const HeldOut held(out);
  return call_stat(real_lstat, real___lxstat, path, out);
}
HEADROOM_EXPORT int lstat64(const char* path, struct stat64* out) noexcept {
  return lstat(path, reinterpret_cast<struct stat*>(out));
}
HEADROOM_EXPORT int fstat(int file, struct stat* out) noexcept {
  const HeldOut held(out);
  return call_stat(real_fstat, real___fxstat, file, out);
}
HEADROOM_EXPORT int fstat64(int file, struct stat64* out) noexcept { return fstat(file, reinterpret_cast<struct stat*>(out)); }
HEADROOM_EXPORT int fstatat(int directory, const char* path, struct stat* out, int flags) noexcept {
  const HeldText text(path);
  const HeldOut held(out);
  return call_stat(real_fstatat, real___fxstatat, directory, path, out, flags);
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
  const HeldArgument held_timeout(timeout, sizeof *timeout, false);
  const HeldArgument held_mask(mask, sizeof *mask, false);
  sigset_t place;
  return real_ppoll.get()(files, count, timeout, pager::without_fault_signal(mask, place));
}
HEADROOM_EXPORT int select(int count, fd_set* in, fd_set* out, fd_set* other, timeval* timeout) {
  const size_t bytes = (static_cast<size_t>(std::max(count, 0)) + 63) / 64 * 8;
  const HeldArgument held_in(in, bytes, true);
  const HeldArgument held_out(out, bytes, true);
  const HeldArgument held_other(other, bytes, true);
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
HEADROOM_EXPORT pid_t wait4(pid_t pid, int* status, int options, rusage* usage) {
  const HeldOut held(status);
  const HeldOut held_usage(usage);
  return real_wait4.get()(pid, status, options, usage);
}
HEADROOM_EXPORT pid_t wait3(int* status, int options, rusage* usage) { return wait4(-1, status, options, usage); }
HEADROOM_EXPORT int waitid(idtype_t kind, id_t id, siginfo_t* info, int options) {
  const HeldOut held(info);
  return real_waitid.get()(kind, id, info, options);
}

// Programs that were built with a C library older than 2.33 call these.
HEADROOM_EXPORT int __xstat(int, const char* path, struct stat* out) noexcept { return stat(path, out); }
HEADROOM_EXPORT int __xstat64(int, const char* path, struct stat64* out) noexcept { return stat64(path, out); }
HEADROOM_EXPORT int __lxstat(int, const char* path, struct stat* out) noexcept { return lstat(path, out); }
HEADROOM_EXPORT int __lxstat64(int, const char* path, struct stat64* out) noexcept { return lstat64(path, out); }
HEADROOM_EXPORT int __fxstat(int, int file, struct stat* out) noexcept { return fstat(file, out); }
HEADROOM_EXPORT int __fxstat64(int, int file, struct stat64* out) noexcept { return fstat64(file, out); }
HEADROOM_EXPORT int __fxstatat(int, int directory, const char* path, struct stat* out, int flags) noexcept {
  return fstatat(directory, path, out, flags);
}
HEADROOM_EXPORT int __fxstatat64(int, int directory, const char* path, struct stat64* out, int flags) noexcept {
  return fstatat64(directory, path, out, flags);
}

HEADROOM_EXPORT int ioctl(int file, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (__builtin_expect(refuse_to_watch(request, argument), 0)) {
    errno = EBUSY;
    return -1;
  }
  const HeldArgument held(argument, request_bytes(request, argument), true);
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
