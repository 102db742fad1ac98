// See page_table.h.
#include "pager/page_table.h"

#include <fcntl.h>

#include "arena/arena.h"
#include "base/own_descriptors.h"
#include "base/system_calls.h"

namespace headroom::pager {
namespace {

int descriptor() {
  static const int opened = base::own(base::system_call(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  return opened;
}

}  // namespace

bool can_read_page_table() { return descriptor() >= 0; }

bool read_page_table(uintptr_t address, uint64_t& entry) {
  const uint64_t offset = address / arena::kPageBytes * sizeof entry;
  return base::system_call(SYS_pread64, descriptor(), &entry, sizeof entry, offset) == sizeof entry;
}

}  // namespace headroom::pager
