// See shortcuts.h.
#include "mpi/shortcuts.h"

#include "base/system_calls.h"
#include "mpi/progress_hook.h"
#include "pager/pager.h"
#include "sched/scheduler.h"
#include "trace/counters.h"

namespace headroom::mpi {
namespace {

const BackendRequest* targets = nullptr;
std::atomic<bool> ways_known{false};  // MPI_Init is over
std::atomic<bool> nonblocking_collectives{false};
base::FutexLock choosing;
bool often_straight = false;
bool polling_straight = false;

void lead(char shortcut, bool straight) {
  for (int entry = 0; entry < kEntryCount; ++entry) {
    if (HEADROOM_FUNCTION_SHORTCUTS[entry / 2] == shortcut && targets->wrapper[entry] != nullptr) {
      headroom_mpi_table[entry].store(straight ? targets->real[entry] : targets->wrapper[entry], std::memory_order_release);
    }
  }
}

}  // namespace

void fill_table(const BackendRequest& request, void* missing) {
  const base::LockHolder lock(choosing);
  targets = &request;
  for (int entry = 0; entry < kEntryCount; ++entry) {
    void* target = request.wrapper[entry] != nullptr ? request.wrapper[entry] : request.real[entry];
    headroom_mpi_table[entry].store(target != nullptr ? target : missing, std::memory_order_release);
  }
  often_straight = false;
  polling_straight = false;
}

void choose_shortcuts() {
  if (!ways_known.load(std::memory_order_acquire)) {
    return;
  }
  const base::LockHolder lock(choosing);
  const sched::Mode mode = sched::mode();
  const bool pass = mode == sched::Mode::kPass;
  const bool yields_by_hook = mode == sched::Mode::kYield && progress_hook_works();
  const bool often = (pass || yields_by_hook) && !nonblocking_collectives.load(std::memory_order_relaxed);
  if (often != often_straight) {
    often_straight = often;
    trace::count(often ? trace::Counter::kShortcutsTaken : trace::Counter::kShortcutsEnded);
    lead('t', often);
  }
  if (pass != polling_straight) {
    polling_straight = pass;
    lead('p', pass);
    watch_progress(!pass);
  }
}

void set_nonblocking_collectives(bool on) {
  nonblocking_collectives.store(on, std::memory_order_relaxed);
  if (!ways_known.exchange(true, std::memory_order_acq_rel)) {
    pager::call_when_changed(choose_shortcuts);
  }
  choose_shortcuts();
}

}  // namespace headroom::mpi
