// The variants of calls that compilers choose under _FORTIFY_SOURCE, as most distributions' packages do: the size of the
// program's buffer is passed along, and a call that would overrun it ends the program, as in the C library.
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "heap/held_calls.h"

#if defined(_FORTIFY_SOURCE) && _FORTIFY_SOURCE > 0
#error "__open_2 below would call itself: compile Headroom without _FORTIFY_SOURCE"
#endif

extern "C" void __chk_fail();

namespace {

HEADROOM_REAL(__chk_fail);

/// Ends the program as the C library does. (By its own function, which some compilers' libraries define, too.)
[[noreturn]] void fail() {
  if (real___chk_fail.get() != nullptr) {
    real___chk_fail.get()();
  }
  abort();
}

void check(size_t wanted, size_t room) {
  if (wanted > room) {
    fail();
  }
}

void check_items(size_t size, size_t count, size_t room) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(size, count, &bytes) || bytes > room) {
    fail();
  }
}

}  // namespace

HEADROOM_EXPORT ssize_t __read_chk(int file, void* buffer, size_t bytes, size_t room) {
  check(bytes, room);
  return read(file, buffer, bytes);
}
HEADROOM_EXPORT ssize_t __pread_chk(int file, void* buffer, size_t bytes, off_t offset, size_t room) {
  check(bytes, room);
  return pread(file, buffer, bytes, offset);
}
HEADROOM_EXPORT ssize_t __pread64_chk(int file, void* buffer, size_t bytes, off_t offset, size_t room) {
  check(bytes, room);
  return pread(file, buffer, bytes, offset);
}
HEADROOM_EXPORT ssize_t __recv_chk(int socket, void* buffer, size_t bytes, size_t room, int flags) {
  check(bytes, room);
  return recv(socket, buffer, bytes, flags);
}
HEADROOM_EXPORT ssize_t __recvfrom_chk(int socket, void* buffer, size_t bytes, size_t room, int flags, sockaddr* from,
                                       socklen_t* length) {
  check(bytes, room);
  return recvfrom(socket, buffer, bytes, flags, from, length);
}
HEADROOM_EXPORT size_t __fread_chk(void* buffer, size_t room, size_t size, size_t count, FILE* stream) {
  check_items(size, count, room);
  return fread(buffer, size, count, stream);
}
HEADROOM_EXPORT size_t __fread_unlocked_chk(void* buffer, size_t room, size_t size, size_t count, FILE* stream) {
  check_items(size, count, room);
  return fread_unlocked(buffer, size, count, stream);
}

HEADROOM_EXPORT int __open_2(const char* path, int flags) { return open(path, flags); }
HEADROOM_EXPORT int __open64_2(const char* path, int flags) { return open64(path, flags); }
HEADROOM_EXPORT int __openat_2(int directory, const char* path, int flags) { return openat(directory, path, flags); }
HEADROOM_EXPORT int __openat64_2(int directory, const char* path, int flags) { return openat64(directory, path, flags); }
HEADROOM_EXPORT int __poll_chk(pollfd* files, nfds_t count, int timeout, size_t room) {
  check_items(sizeof *files, count, room);
  return poll(files, count, timeout);
}
HEADROOM_EXPORT int __ppoll_chk(pollfd* files, nfds_t count, const timespec* timeout, const sigset_t* mask, size_t room) {
  check_items(sizeof *files, count, room);
  return ppoll(files, count, timeout, mask);
}
HEADROOM_EXPORT ssize_t __readlink_chk(const char* path, char* out, size_t bytes, size_t room) {
  check(bytes, room);
  return readlink(path, out, bytes);
}
HEADROOM_EXPORT ssize_t __readlinkat_chk(int directory, const char* path, char* out, size_t bytes, size_t room) {
  check(bytes, room);
  return readlinkat(directory, path, out, bytes);
}
HEADROOM_EXPORT char* __realpath_chk(const char* path, char* out, size_t room) {
  check(PATH_MAX, room);
  return realpath(path, out);
}
HEADROOM_EXPORT char* __getcwd_chk(char* out, size_t bytes, size_t room) {
  check(bytes, room);
  return getcwd(out, bytes);
}
HEADROOM_EXPORT int __getgroups_chk(int most, gid_t* out, size_t room) {
  check_items(sizeof *out, most > 0 ? static_cast<size_t>(most) : 0, room);
  return getgroups(most, out);
}
