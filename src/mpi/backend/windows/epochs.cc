// See epochs.h.
#include "mpi/backend/windows/epochs.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "direct/window.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/memory.h"
#include "mpi/backend/messages/ending.h"
#include "mpi/backend/messages/waiting.h"
#include "mpi/backend/windows/windows.h"

namespace headroom::mpi {
namespace {

bool is_fence(int assert) { return (assert& MPI_MODE_NOSUCCEED) == 0; }

/// The ranks of a group in the window; nullptr if it has others.
int* ranks_in_window(const Window& window, MPI_Group group, int& count) {
  const InsideLibrary inside;
  if (group == MPI_GROUP_NULL || real.Group_size[1](group, &count) != MPI_SUCCESS) {
    return nullptr;
  }
  const auto places = static_cast<size_t>(count);
  auto* ranks = static_cast<int*>(memory_or_abort((2 * places + 1) * sizeof(int)));
  for (int index = 0; index < count; ++index) {
    ranks[count + index] = index;
  }
  bool inside_window = real.Group_translate_ranks[1](group, count, ranks + count, window.group, ranks) == MPI_SUCCESS;
  for (int index = 0; index < count; ++index) {
    inside_window = inside_window && ranks[index] != MPI_UNDEFINED;
  }
  if (!inside_window) {
    free(ranks);
    return nullptr;
  }
  return ranks;
}

direct::WindowControl& control_of(const Window& window, int rank) { return *core->windows.control(window.parts[rank]); }

bool is_completed(const Window& window) {
  for (int index = 0; index < window.posted_count; ++index) {
    const int origin = window.posted[index];
    if (!direct::was_completed(*window.own, origin, window.concluded[origin])) {
      return false;
    }
  }
  return true;
}

void end_exposure(Window& window) {
  for (int index = 0; index < window.posted_count; ++index) {
    ++window.concluded[window.posted[index]];
  }
  free(window.posted);
  window.posted = nullptr;
  window.posted_count = -1;
}

/// Waits for the lock of a rank's part.
void lock_part(const Window& window, int rank, bool exclusive) {
  direct::WindowControl& control = control_of(window, rank);
  wait_direct([&] {
    if (core->windows.lock_or_mark(control, exclusive)) {
      return true;
    }
    make_progress();
    return false;
  });
}

/// Everything was over when its call returned. Others see it before this rank reads anything more; on x86-64 the atomic
/// subtraction at the end of a hold has seen to that (direct/peer_hold.cc).
int flush_window(Window& window, bool within_lock) {
  if (!within_lock) {
    return raise_window_error(window, MPI_ERR_RMA_SYNC);
  }
#if !defined(__x86_64__)
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  progress_at_times();
  return MPI_SUCCESS;
}

bool has_locks(const Window& window) {
  bool any = window.all_locked;
  for (int rank = 0; !any && rank < window.among.size; ++rank) {
    any = (window.reach[rank] & (kLockedShared | kLockedAlone)) != 0;
  }
  return any;
}

}  // namespace

void note_polling(bool found) {
  if (core->counts_polls()) {
    core->polled(found, {});
  }
}

void progress_at_times() {
  constexpr uint32_t kEach = 16;
  static thread_local uint32_t calls = 0;
  if (++calls % kEach == 0) {
    make_progress();
  }
  poll_library_at_times();
}

int direct_Win_fence(Window& window, int assert) {
  if (window.all_locked || window.started_count >= 0 || window.posted_count >= 0) {
    return raise_window_error(window, MPI_ERR_RMA_SYNC);
  }
  wait_for_all(window);
  window.fenced = is_fence(assert);
  return MPI_SUCCESS;
}

int direct_Win_post(Window& window, MPI_Group group, int) {
  if (window.posted_count >= 0) {
    return raise_window_error(window, MPI_ERR_RMA_SYNC);
  }
  int count = 0;
  int* ranks = ranks_in_window(window, group, count);
  if (ranks == nullptr) {
    return raise_window_error(window, MPI_ERR_GROUP);
  }
  window.posted = ranks;
  window.posted_count = count;
  for (int index = 0; index < count; ++index) {
    const int origin = ranks[index];
    direct::count_posted(control_of(window, origin), window.among.rank);
    core->windows.wake(window.parts[origin].member);
  }
  return MPI_SUCCESS;
}

int direct_Win_start(Window& window, MPI_Group group, int) {
  if (window.started_count >= 0 || window.all_locked) {
    return raise_window_error(window, MPI_ERR_RMA_SYNC);
  }
  int count = 0;
  int* ranks = ranks_in_window(window, group, count);
  if (ranks == nullptr) {
    return raise_window_error(window, MPI_ERR_GROUP);
  }
  for (int index = 0; index < count; ++index) {
    if (window.reach[ranks[index]] != 0) {
      free(ranks);
      return raise_window_error(window, MPI_ERR_RMA_SYNC);
    }
  }
  window.started = ranks;
  window.started_count = count;
  window.fenced = false;
  const SeveralWaits waits;
  for (int index = 0; index < count; ++index) {
    const int target = ranks[index];
    wait_direct([&] {
      if (direct::was_posted(*window.own, target, window.used[target])) {
        return true;
      }
      make_progress();
      return false;
    });
    ++window.used[target];
    window.reach[target] |= kStarted;
  }
  return MPI_SUCCESS;
}

int direct_Win_complete(Window& window) {
  if (window.started_count < 0) {
    return raise_window_error(window, MPI_ERR_RMA_SYNC);
  }
  for (int index = 0; index < window.started_count; ++index) {
    const int target = window.started[index];
    window.reach[target] &= static_cast<uint8_t>(~kStarted);
    direct::count_completed(control_of(window, target), window.among.rank);
    core->windows.wake(window.parts[target].member);
  }
  free(window.started);
  window.started = nullptr;
  window.started_count = -1;
  return MPI_SUCCESS;
}

int direct_Win_wait(Window& window) {
  if (window.posted_count < 0) {
    return raise_window_error(window, MPI_ERR_RMA_SYNC);
  }
  wait_direct([&] {
    if (is_completed(window)) {
      return true;
    }
    make_progress();
    return false;
  });
  end_exposure(window);
  return MPI_SUCCESS;
}

int direct_Win_test(Window& window, int* flag) {
  if (window.posted_count < 0) {
    return raise_window_error(window, MPI_ERR_RMA_SYNC);
  }
  *flag = is_completed(window) ? 1 : 0;
  note_polling(*flag != 0);
  if (*flag != 0) {
    end_exposure(window);
  } else {
    make_progress();
    poll_library_at_times();
  }
  return MPI_SUCCESS;
}

bool is_rank_of(const Window& window, int rank) { return rank >= 0 && rank < window.among.size; }

int direct_Win_lock(Window& window, int lock_type, int rank, int) {
  if (rank == MPI_PROC_NULL) {
    return MPI_SUCCESS;
  }
  if (!is_rank_of(window, rank)) {
    return raise_window_error(window, MPI_ERR_RANK);
  }
  if (lock_type != MPI_LOCK_SHARED && lock_type != MPI_LOCK_EXCLUSIVE) {
    return raise_window_error(window, MPI_ERR_LOCKTYPE);
  }
  if (window.all_locked || window.reach[rank] != 0) {
    return raise_window_error(window, MPI_ERR_RMA_SYNC);
  }
  const bool exclusive = lock_type == MPI_LOCK_EXCLUSIVE;
  lock_part(window, rank, exclusive);
  window.reach[rank] = exclusive ? kLockedAlone : kLockedShared;
  window.fenced = false;
  return MPI_SUCCESS;
}

int direct_Win_unlock(Window& window, int rank) {
  if (rank == MPI_PROC_NULL) {
    return MPI_SUCCESS;
  }
  if (!is_rank_of(window, rank)) {
    return raise_window_error(window, MPI_ERR_RANK);
  }
  if ((window.reach[rank] & (kLockedShared | kLockedAlone)) == 0) {
    return raise_window_error(window, MPI_ERR_RMA_SYNC);
  }
  core->windows.unlock(control_of(window, rank), (window.reach[rank] & kLockedAlone) != 0);
  window.reach[rank] &= static_cast<uint8_t>(~(kLockedShared | kLockedAlone));
  if (rank == window.among.rank) {
    note_polling(false);  // as in direct_Win_sync()
  }
  progress_at_times();
  return MPI_SUCCESS;
}

int direct_Win_lock_all(Window& window, int) {
  if (window.all_locked || window.started_count >= 0) {
    return raise_window_error(window, MPI_ERR_RMA_SYNC);
  }
  for (int locked = 0; locked < window.among.size;) {
    if (core->windows.try_lock(control_of(window, locked), false)) {
      ++locked;
      continue;
    }
    for (int back = 0; back < locked; ++back) {
      core->windows.unlock(control_of(window, back), false);
    }
    lock_part(window, locked, false);
    core->windows.unlock(control_of(window, locked), false);
    locked = 0;
  }
  window.all_locked = true;
  window.fenced = false;
  return MPI_SUCCESS;
}

int direct_Win_unlock_all(Window& window) {
  if (!window.all_locked) {
    return raise_window_error(window, MPI_ERR_RMA_SYNC);
  }
  for (int rank = 0; rank < window.among.size; ++rank) {
    core->windows.unlock(control_of(window, rank), false);
  }
  window.all_locked = false;
  progress_at_times();
  return MPI_SUCCESS;
}

int direct_Win_flush(Window& window, int rank) {
  if (rank == MPI_PROC_NULL) {
    return MPI_SUCCESS;
  }
  if (!is_rank_of(window, rank)) {
    return raise_window_error(window, MPI_ERR_RANK);
  }
  return flush_window(window, window.all_locked || (window.reach[rank] & (kLockedShared | kLockedAlone)) != 0);
}

int direct_Win_flush_all(Window& window) { return flush_window(window, has_locks(window)); }

int direct_Win_flush_local(Window& window, int rank) { return direct_Win_flush(window, rank); }

int direct_Win_flush_local_all(Window& window) { return direct_Win_flush_all(window); }

int direct_Win_sync(Window&) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  note_polling(false);  // a program that looks at its own part until it changes
  progress_at_times();
  return MPI_SUCCESS;
}

}  // namespace headroom::mpi
