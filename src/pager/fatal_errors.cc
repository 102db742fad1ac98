// See fatal_errors.h.
#include "pager/fatal_errors.h"

#include <string.h>

#include "base/log.h"
#include "pager/state.h"

namespace headroom::pager {

void die_without_memory() {
  base::die("the kernel has no memory for a block although the budget allows it; lower --memory (now %lld MiB for the node)",
            static_cast<long long>(state.session->ledger->budget >> 20));
}

void die_of_transfer(bool write, uint64_t bytes, int error) {
  const auto kib = static_cast<unsigned long long>(bytes >> 10);
  if (write) {
    base::die(
        "writing %llu KiB of memory to the storage in %s failed: %s; this memory has nowhere to go, so the run ends; "
        "free room there or choose another directory with --storage, or raise --memory",
        kib, base::settings().storage, strerror(error));
  }
  base::die(
      "reading %llu KiB back from the storage in %s failed: %s; memory that was there is lost, so the run ends; check "
      "the disk, or choose another --storage",
      kib, base::settings().storage, strerror(error));
}

}  // namespace headroom::pager
