// See wait_status.h. The kernel keeps the status with the process's descriptor since Linux 6.15; before, it is in /proc as long
// as the parent has not taken it.
#include "node/wait_status.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include <cstdint>
#include <initializer_list>

#include "base/system_calls.h"

namespace headroom::node {
namespace {

using base::system_call;

// The kernel's struct pidfd_info, which older headers lack.
struct PidfdInfo {
  uint64_t mask;
  uint64_t cgroup;
  uint32_t ids[11];
  int32_t exit_code;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr uint64_t kInfoOfExit = 1 << 3;
constexpr unsigned long kGetInfo = _IOWR(0xFF, 11, PidfdInfo);

int status_kept(int pidfd) {
  PidfdInfo info = {};
  info.mask = kInfoOfExit;
  const bool is_known = pidfd >= 0 && !base::is_error(system_call(SYS_ioctl, pidfd, kGetInfo, &info));
  return is_known && (info.mask & kInfoOfExit) != 0 ? info.exit_code : -1;
}

/// The last number in /proc/PID/stat of a process in state Z.
int status_of_zombie(int process) {
  char path[32];
  (void)snprintf(path, sizeof path, "/proc/%d/stat", process);
  const long file = system_call(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
  if (base::is_error(file)) {
    return -1;
  }
  char text[1024] = {};
  (void)system_call(SYS_read, file, text, sizeof text - 1);
  (void)system_call(SYS_close, file);
  const char* end_of_name = strrchr(text, ')');
  const char* last = strrchr(text, ' ');
  int status = -1;
  const bool is_zombie = end_of_name != nullptr && strncmp(end_of_name, ") Z ", 4) == 0;
  return is_zombie && last > end_of_name && sscanf(last, "%d", &status) == 1 ? status : -1;
}

}  // namespace

int wait_status_of(int process, int pidfd) {
  for (const int known : {status_kept(pidfd), status_of_zombie(process)}) {
    if (known >= 0) {
      return known;
    }
  }
  return status_kept(pidfd);  // its parent may have taken it in between
}

}  // namespace headroom::node
