// Tells whether another process has ended; for programs beside the library, since it goes by the C library.
#pragma once

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace headroom::base {

/// Linux before 5.3 has no descriptors of processes: one that has ended and was not waited for then counts as alive.
inline bool has_ended(pid_t process) {
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  if (descriptor < 0) {
    return errno == ESRCH || kill(process, 0) != 0;
  }
  pollfd ended = {descriptor, POLLIN, 0};
  const bool is_over = poll(&ended, 1, 0) == 1;
  close(descriptor);
  return is_over;
}

}  // namespace headroom::base
