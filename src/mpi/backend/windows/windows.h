// Windows for one-sided communication. See direct/window.h.
//
// A window on a communicator whose messages are direct is direct if each rank's part lies in evictable memory; all ranks find
// out together when it is made. MPI_Win_allocate is given such memory. The library makes its window all the same, for its
// handle, attributes, names and error handlers, and never hears of anything that is done with it: synchronisation is done here,
// too, since the library's may put off what it need not do for itself (a lock until something is done under it, an exposure
// until a message is there), and everything is over when its call returns. Other windows are the library's whole: dynamic and
// shared ones, parts on stacks and other nodes.
#pragma once

#include <atomic>
#include <cstdint>

#include "direct/window.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/objects/communicators.h"

namespace headroom::mpi {

struct Window {
  std::atomic<MPI_Win> handle;
  Communicator among;  // of the window's ranks, in a context of its own
  MPI_Group group;
  direct::WindowPart* parts;  // by rank
  direct::WindowControl* own;
  uint32_t* used;       // by rank: posts of it that were started, and
  uint32_t* concluded;  //   completions of it that were waited for
  uint8_t* reach;       // by rank: kLocked..., kStarted
  bool fenced;
  bool all_locked;
  int* started;  // the ranks of the access epoch, and
  int started_count;
  int* posted;  //   of the exposure epoch; count -1: there is none
  int posted_count;
  void* allocated;  // by MPI_Win_allocate
  int flavor;
  void* base;  // as the program sees the window, whatever the library was shown
  MPI_Aint bytes;
  uint64_t last_fetched;  // what a fetch has found, and where: a program that polls
  Window* next;
};

constexpr uint8_t kLockedShared = 1;
constexpr uint8_t kLockedAlone = 2;
constexpr uint8_t kStarted = 4;

extern std::atomic<Window*> windows;
extern std::atomic<Window*> window_cache[kCacheEntries];

/// As window_of(), past the cache; nullptr: it is the library's.
Window* look_up_window(MPI_Win win);

/// The window, if it is direct.
inline Window* window_of(MPI_Win win) {
  if (windows.load(std::memory_order_acquire) == nullptr) {
    return nullptr;
  }
  Window* cached = window_cache[number_of(win) % kCacheEntries].load(std::memory_order_acquire);
  if (__builtin_expect(cached != nullptr && cached->handle.load(std::memory_order_relaxed) == win, 1)) {
    return cached;
  }
  return look_up_window(win);
}

/// Calls the window's error handler; returns the error.
int raise_window_error(const Window& window, int error);

/// A barrier of the window's ranks.
void wait_for_all(Window& window);

/// MPI_Win_get_attr, which for a direct window's base, size and unit has its own answer.
int direct_Win_get_attr(Window& window, int win_keyval, void* attribute_val, int* flag);

}  // namespace headroom::mpi
