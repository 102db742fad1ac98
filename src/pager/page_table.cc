// See page_table.h.
#include "pager/page_table.h"

#include <fcntl.h>

#include "arena/arena.h"
#include "base/system_calls.h"

namespace headroom::pager {
namespace {

long descriptor() {
  static const long opened = base::system_call(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  return opened;
}

}  // namespace

bool can_read_page_table() { return !base::is_error(descriptor()); }

bool read_page_table(uintptr_t address, uint64_t& entry) {
  const uint64_t offset = address / arena::kPageBytes * sizeof entry;
  return base::system_call(SYS_pread64, descriptor(), &entry, sizeof entry, offset) == sizeof entry;
}

}  // namespace headroom::pager
