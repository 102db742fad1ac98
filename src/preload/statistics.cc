// The public C interface; see include/headroom/headroom.h.
#define HEADROOM_DEFINES_THEM
#include <errno.h>
#include <stddef.h>

#include "headroom/headroom.h"
#include "pager/pager.h"
#include "trace/counters.h"

using headroom::trace::counted;
using headroom::trace::Counter;

extern "C" __attribute__((visibility("default"))) int headroom_read_statistics(headroom_statistics* statistics) {
  if (statistics == nullptr || statistics->size < sizeof(headroom_statistics)) {
    return -EINVAL;
  }
  if (!headroom::pager::is_running()) {
    return -ENOENT;
  }
  const headroom::node::Session& session = headroom::pager::session();
  const int64_t budget = session.ledger->budget;
  const int64_t free_bytes = session.ledger->free_bytes.load(std::memory_order_relaxed);
  statistics->size = sizeof *statistics;
  statistics->short_of_memory = session.ledger->lacked_room_ns.load(std::memory_order_relaxed) != 0 ? 1 : 0;
  statistics->budget_bytes = static_cast<uint64_t>(budget);
  statistics->node_bytes = static_cast<uint64_t>(budget - free_bytes);
  statistics->resident_bytes = static_cast<uint64_t>(session.self->memory.reserved_bytes.load(std::memory_order_relaxed));
  statistics->allocated_bytes = counted(Counter::kAllocatedBytes);
  statistics->read_bytes = counted(Counter::kBytesRead);
  statistics->written_bytes = counted(Counter::kBytesWritten);
  statistics->faults = counted(Counter::kFaults);
  return 0;
}
