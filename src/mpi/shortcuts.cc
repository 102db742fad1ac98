// See shortcuts.h.
#include "mpi/shortcuts.h"

#include "base/log.h"
#include "base/system_calls.h"
#include "direct/peer_memory.h"
#include "mpi/progress_hook.h"
#include "pager/pager.h"
#include "sched/scheduler.h"
#include "trace/counters.h"
#include "trace/recorder.h"

namespace headroom::mpi {
namespace {

const BackendRequest* targets = nullptr;
std::atomic<bool> ways_known{false};  // MPI_Init is over
std::atomic<bool> nonblocking_collectives{false};
base::FutexLock choosing;
std::atomic<bool> direct{false};  // some messages do not enter the MPI library

/// A group of functions whose wrappers are left out together.
struct Group {
  char letter;  // HEADROOM_FUNCTION_SHORTCUTS
  bool straight;
};
Group groups[] = {{'t', false}, {'w', false}, {'p', false}, {'d', false}};

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
  for (Group& group : groups) {
    group.straight = false;
  }
}

void choose_shortcuts() {
  if (!ways_known.load(std::memory_order_acquire)) {
    return;
  }
  const base::LockHolder lock(choosing);
  const sched::Mode mode = sched::mode();
  const bool pass = mode == sched::Mode::kPass;
  const bool yields_by_hook = mode == sched::Mode::kYield && progress_hook_works();
  const bool often =
      (pass || yields_by_hook) && !nonblocking_collectives.load(std::memory_order_relaxed) && !trace::is_recording();
  const bool all_in_library = !direct.load(std::memory_order_relaxed);
  const bool wanted[] = {often && all_in_library, often && all_in_library, pass && all_in_library, all_in_library};
  for (int index = 0; index < 4; ++index) {
    Group& group = groups[index];
    if (group.straight != wanted[index]) {
      group.straight = wanted[index];
      if (index == 0) {
        base::log_debug(base::Part::kMpi, "calls that wait go %s",
                        group.straight ? "straight to the library" : "through Headroom");
        trace::count(group.straight ? trace::Counter::kShortcutsTaken : trace::Counter::kShortcutsEnded);
      }
      lead(group.letter, group.straight);
    }
  }
  watch_progress(!pass);
}

void set_direct(bool on) { direct.store(on, std::memory_order_relaxed); }

namespace {

void look_at_changes() {
  direct::empty_memory_of_who_left(pager::session());
  choose_shortcuts();
}

}  // namespace

void set_nonblocking_collectives(bool on) {
  nonblocking_collectives.store(on, std::memory_order_relaxed);
  if (!ways_known.exchange(true, std::memory_order_acq_rel)) {
    pager::call_when_changed(look_at_changes);
  }
  choose_shortcuts();
}

}  // namespace headroom::mpi
