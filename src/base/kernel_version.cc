// See kernel_version.h.
#include "base/kernel_version.h"

#include <stdio.h>
#include <sys/utsname.h>

namespace headroom::base {

bool kernel_is_at_least(int major, int minor) {
  utsname system = {};
  int here_major = 0;
  int here_minor = 0;
  const bool known = uname(&system) == 0 && sscanf(system.release, "%d.%d", &here_major, &here_minor) == 2;
  return known && (here_major > major || (here_major == major && here_minor >= minor));
}

}  // namespace headroom::base
