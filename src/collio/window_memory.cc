// See window_memory.h.
#include "collio/window_memory.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>

#include "base/system_calls.h"
#include "node/memory_left.h"
#include "pager/pager.h"

namespace headroom::collio {
namespace {

using base::system_call;

constexpr int64_t kMostKept = 256 << 10;
/// While memory is short, windows may displace blocks of so large a part of the budget.
constexpr int64_t kPartOfBudget = 8;

std::atomic<char*> kept{nullptr};  // of kMostKept bytes

char* map_counted(int64_t bytes) {
  const long file = system_call(SYS_memfd_create, "headroom-windows", MFD_CLOEXEC);
  char* memory = nullptr;
  if (!base::is_error(file)) {
    if (base::file_may_have(static_cast<uint64_t>(bytes)) && !base::is_error(system_call(SYS_ftruncate, file, bytes))) {
      const long place = system_call(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      memory = base::is_error(place) ? nullptr : reinterpret_cast<char*>(place);
    }
    (void)system_call(SYS_close, file);
  }
  if (memory == nullptr) {  // no descriptor, or a limit on files: measured with what is not Headroom's, then
    const long place = system_call(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memory = base::is_error(place) ? nullptr : reinterpret_cast<char*>(place);
  }
  if (memory != nullptr) {
    (void)system_call(SYS_madvise, memory, bytes, MADV_DONTFORK);
    (void)system_call(SYS_madvise, memory, bytes, MADV_DONTDUMP);
  }
  return memory;
}

}  // namespace

char* take_window_memory(int64_t bytes) {
  char* memory = bytes <= kMostKept ? kept.exchange(nullptr, std::memory_order_acq_rel) : nullptr;
  memory = memory != nullptr ? memory : map_counted(std::max(bytes, kMostKept));
  if (memory != nullptr && pager::is_running()) {
    node::take_for_message(*pager::session().ledger, *pager::session().self, std::max(bytes, kMostKept));
  }
  return memory;
}

void give_back_window_memory(char* memory, int64_t bytes) {
  if (memory == nullptr) {
    return;
  }
  const int64_t all = std::max(bytes, kMostKept);
  if (pager::is_running()) {
    node::release_of_message(*pager::session().ledger, *pager::session().self, all);
  }
  char* none = nullptr;
  if (all == kMostKept && kept.compare_exchange_strong(none, memory, std::memory_order_acq_rel)) {
    return;
  }
  (void)system_call(SYS_munmap, memory, all);
}

int64_t room_for_windows() {
  int64_t room = std::min(node::memory_left(), INT64_MAX / 4);
  if (pager::is_running()) {
    const node::Ledger& ledger = *pager::session().ledger;
    room = std::min(room, std::max(ledger.free_bytes.load(std::memory_order_relaxed), ledger.budget / kPartOfBudget));
  }
  return room;
}

}  // namespace headroom::collio
