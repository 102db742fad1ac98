// See windows.h.
#include "mpi/backend/windows/windows.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/system_calls.h"
#include "direct/window.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/collectives/barriers.h"
#include "mpi/backend/collectives/collectives.h"
#include "mpi/backend/collectives/exchange.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/memory.h"
#include "mpi/backend/messages/network.h"
#include "mpi/backend/messages/request_contents.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/state.h"
#include "mpi/services.h"

namespace headroom::mpi {
namespace {

constexpr uint64_t kWindowConstructor = 2000;

/// Gives each rank what every rank contributes.
void gather_among(Communicator& among, const void* mine, void* all, uint64_t bytes) {
  Waits ending;
  Exchange& exchange = ending.begin(among, among.size, among.size);
  auto* places = static_cast<char*>(all);
  memcpy(places + static_cast<uint64_t>(among.rank) * bytes, mine, bytes);
  for (int step = 1; step < among.size; ++step) {
    exchange.send((among.rank + step) % among.size, {static_cast<char*>(const_cast<void*>(mine)), bytes, nullptr});
  }
  for (int step = 1; step < among.size; ++step) {
    const int peer = (among.rank - step + among.size) % among.size;
    ending.receive(peer, {places + static_cast<uint64_t>(peer) * bytes, bytes, nullptr});
  }
  (void)ending.end(MPI_COMM_SELF);
}

bool all_agree(Communicator& among, bool mine) {
  const char answer = mine ? 1 : 0;
  auto* answers = static_cast<char*>(memory_or_abort(static_cast<size_t>(among.size)));
  gather_among(among, &answer, answers, 1);
  bool all = true;
  for (int rank = 0; rank < among.size; ++rank) {
    all = all && answers[rank] != 0;
  }
  free(answers);
  return all;
}

/// The ranks of a communicator in the context of its next window; false if its messages are not direct.
bool make_window_ranks(MPI_Comm comm, Communicator& among) {
  Communicator* parent = collective_on(comm);
  uint64_t context = 0;
  if (parent == nullptr || !next_context(comm, kWindowConstructor, context)) {
    return false;
  }
  among.direct = true;
  among.context = context;
  among.rank = parent->rank;
  among.size = parent->size;
  const auto bytes = static_cast<size_t>(parent->size) * sizeof(int32_t);
  among.members = static_cast<int32_t*>(memory_or_abort(bytes));
  memcpy(among.members, parent->members, bytes);
  return true;
}

Window* free_windows = nullptr;  // never given back: another thread may be looking at a stale one's handle

Window* take_window() {
  const base::LockHolder lock(look_up_lock);
  if (free_windows == nullptr) {
    return static_cast<Window*>(memory_or_abort(sizeof(Window)));
  }
  Window* window = free_windows;
  free_windows = window->next;
  new (window) Window();
  return window;
}

void drop_window(Window* window) {
  if (window->parts != nullptr) {
    core->windows.drop_part(window->parts[window->among.rank], window->among.size);
  }
  free(window->parts);
  free(window->used);
  free(window->concluded);
  free(window->reach);
  free(window->started);
  free(window->posted);
  free(window->among.members);
  free(window->among.places);
  let_go_of_tally(window->among);
  window->handle.store(MPI_WIN_NULL, std::memory_order_relaxed);
  const base::LockHolder lock(look_up_lock);
  window->next = free_windows;
  free_windows = window;
}

/// The beginning of a window that all ranks of the communicator make, with `bytes` (negative: it cannot be) at `base` here, if
/// it is going to be direct; else nullptr, on all of them.
Window* begin_window(MPI_Comm comm, void* base, MPI_Aint bytes, MPI_Aint unit) {
  Window* window = take_window();
  if (!make_window_ranks(comm, window->among)) {
    drop_window(window);
    core->windows.count(false);
    return nullptr;
  }
  const int ranks = window->among.size;
  window->parts = static_cast<direct::WindowPart*>(memory_or_abort(static_cast<size_t>(ranks) * sizeof(direct::WindowPart)));
  const direct::WindowPart mine =
      bytes >= 0 ? core->windows.make_part(base, static_cast<uint64_t>(bytes), unit, ranks) : direct::WindowPart{};
  gather_among(window->among, &mine, window->parts, sizeof mine);
  bool usable = true;
  for (int rank = 0; rank < ranks; ++rank) {
    usable = usable && core->windows.open_part(window->parts[rank]);
  }
  usable = all_agree(window->among, usable);
  core->windows.count(usable);
  if (!usable) {
    drop_window(window);
  }
  return usable ? window : nullptr;
}

/// The library has made `win`, or could not.
int enter_window(Window* window, int error, const MPI_Win* win) {
  if (error != MPI_SUCCESS) {
    drop_window(window);
    return error;
  }
  const auto size = static_cast<size_t>(window->among.size);
  window->used = static_cast<uint32_t*>(memory_or_abort(size * sizeof(uint32_t)));
  window->concluded = static_cast<uint32_t*>(memory_or_abort(size * sizeof(uint32_t)));
  window->reach = static_cast<uint8_t*>(memory_or_abort(size));
  window->own = core->windows.control(window->parts[window->among.rank]);
  window->started_count = -1;
  window->posted_count = -1;
  window->handle.store(*win, std::memory_order_relaxed);
  real.Win_get_group[1](*win, &window->group);
  const base::LockHolder lock(look_up_lock);
  window->next = windows.load(std::memory_order_relaxed);
  windows.store(window, std::memory_order_release);
  return MPI_SUCCESS;
}

/// Whether the call may make a window: the other ranks may not have made a call that the library refuses at once.
inline bool may_be_window(MPI_Aint size, MPI_Aint unit) { return direct_on && size >= 0 && unit > 0; }

// Memory that the library registers with a network card must not move: where cards are, the memory of windows that are the
// library's is held from before it is registered until after it no longer is, and counts like pinned memory. Of direct windows
// the library is shown nothing: their operations do not pass through it.

/// Memory that the library has registered, of a window that is its own.
struct Registered {
  MPI_Win window;
  void* base;
  MPI_Aint bytes;
  Registered* next;
};

Registered* registered = nullptr;  // under look_up_lock

void remember_registered(MPI_Win window, void* base, MPI_Aint bytes) {
  auto* more = static_cast<Registered*>(memory_or_abort(sizeof(Registered)));
  const base::LockHolder lock(look_up_lock);
  *more = {window, base, bytes, registered};
  registered = more;
}

/// Holds no longer what a window has of `base`, or of anything (nullptr).
void forget_registered(MPI_Win window, const void* base) {
  const base::LockHolder lock(look_up_lock);
  for (Registered** link = &registered; *link != nullptr;) {
    Registered* const each = *link;
    if (each->window == window && (base == nullptr || each->base == base)) {
      *link = each->next;
      core->drop_long(each->base, static_cast<uint64_t>(each->bytes));
      free(each);
    } else {
      link = &each->next;
    }
  }
}

/// Each rank of a window holds what it brings, where cards will write there. False where one could not: a window is made by
/// all or none. Nodes differ, and a session's members may know of no others, so this is agreed anew for each window.
bool hold_on_all(MPI_Comm comm, const void* base, MPI_Aint bytes) {
  const bool registers = node_registers && bytes > 0;
  const int held = !registers || core->hold_long(base, static_cast<uint64_t>(bytes)) ? 1 : 0;
  int all = held;
  {
    arrive_together(comm);
    const WithoutSlot waiting;
    real.Allreduce[1](&held, &all, 1, MPI_INT, MPI_MIN, comm);
  }
  if (held == 0) {
    core->say_no_room_for_window(static_cast<uint64_t>(bytes));
  } else if (all == 0 && registers) {
    core->drop_long(base, static_cast<uint64_t>(bytes));
  }
  return all != 0;
}

/// Makes a window that is the library's.
template <typename Create, typename Unit>
int create_library_window(Create create, void* base, MPI_Aint size, Unit disp_unit, MPI_Info info, MPI_Comm comm,
                          MPI_Win* win) {
  const bool is_allowed = comm != MPI_COMM_NULL && size >= 0 && disp_unit > 0;
  if (is_allowed && !hold_on_all(comm, base, size)) {
    return raise_error(comm, MPI_ERR_NO_MEM);
  }
  int error = MPI_SUCCESS;
  {
    const WithoutSlot waiting;
    error = create(base, size, disp_unit, info, comm, win);
  }
  const bool holds = is_allowed && node_registers && size > 0;
  if (holds && error == MPI_SUCCESS) {
    remember_registered(*win, base, size);
  } else if (holds) {
    core->drop_long(base, static_cast<uint64_t>(size));
  }
  return error;
}

/// Makes the library's handle for a direct window, with no memory where it would be registered.
template <typename Create, typename Unit>
int create_handle(Create create, Window& window, void* base, MPI_Aint size, Unit disp_unit, MPI_Info info, MPI_Comm comm,
                  MPI_Win* win) {
  window.base = base;
  window.bytes = size;
  const WithoutSlot waiting;
  return create(node_registers ? nullptr : base, node_registers ? 0 : size, disp_unit, info, comm, win);
}

template <typename Create, typename Unit>
int create_window(Create create, void* base, MPI_Aint size, Unit disp_unit, MPI_Info info, MPI_Comm comm, MPI_Win* win) {
  const InsideLibrary inside;
  const WaysMayChange change;
  Window* window = may_be_window(size, disp_unit) ? begin_window(comm, base, size, disp_unit) : nullptr;
  if (window == nullptr) {
    return create_library_window(create, base, size, disp_unit, info, comm, win);
  }
  return enter_window(window, create_handle(create, *window, base, size, disp_unit, info, comm, win), win);
}

/// Windows of MPI_Win_allocate lie in evictable memory, where all ranks can have it.
template <typename Create, typename Allocate, typename Unit>
int allocate_window(Create create, Allocate allocate, MPI_Aint size, Unit disp_unit, MPI_Info info, MPI_Comm comm,
                    void* baseptr, MPI_Win* win) {
  const bool possible = direct_on && communicator_of(comm)->direct;
  void* place = possible && size > 0 ? core->allocate(static_cast<uint64_t>(size), true) : nullptr;
  const InsideLibrary inside;
  const WaysMayChange change;
  Window* window =
      may_be_window(size, disp_unit) ? begin_window(comm, place, size > 0 && place == nullptr ? -1 : size, disp_unit) : nullptr;
  if (window == nullptr) {
    core->release(place);
    arrive_together(comm);
    const WithoutSlot waiting;
    return allocate(size, disp_unit, info, comm, baseptr, win);
  }
  int error = create_handle(create, *window, place, size, disp_unit, info, comm, win);
  window->allocated = place;
  window->flavor = MPI_WIN_FLAVOR_ALLOCATE;
  error = enter_window(window, error, win);
  if (error != MPI_SUCCESS) {
    core->release(place);
  } else {
    memcpy(baseptr, &place, sizeof place);
  }
  return error;
}

}  // namespace

std::atomic<Window*> windows{nullptr};
std::atomic<Window*> window_cache[kCacheEntries];

Window* look_up_window(MPI_Win win) {
  const base::LockHolder lock(look_up_lock);
  for (Window* each = windows.load(std::memory_order_relaxed); each != nullptr; each = each->next) {
    if (each->handle.load(std::memory_order_relaxed) == win) {
      window_cache[number_of(win) % kCacheEntries].store(each, std::memory_order_release);
      return each;
    }
  }
  return nullptr;
}

int raise_window_error(const Window& window, int error) {
  const InsideLibrary inside;
  real.Win_call_errhandler[1](window.handle.load(std::memory_order_relaxed), error);
  return error;
}

void wait_for_all(Window& window) {
  const SeveralWaits waits;
  barrier_among(Waits(), window.among, MPI_COMM_SELF);
}

/// Memory joins a dynamic window, on this rank alone.
int serve_Win_attach(MPI_Win win, void* base, MPI_Aint size, Entry entry) {
  const bool holds = node_registers && size > 0;
  if (holds && !core->hold_long(base, static_cast<uint64_t>(size))) {
    core->say_no_room_for_window(static_cast<uint64_t>(size));
    const InsideLibrary inside;
    return real.Win_call_errhandler[1](win, MPI_ERR_NO_MEM) == MPI_SUCCESS ? MPI_ERR_NO_MEM : MPI_ERR_OTHER;
  }
  const InsideLibrary inside;
  const int error = real.Win_attach[entry](win, base, size);
  if (holds && error == MPI_SUCCESS) {
    remember_registered(win, base, size);
  } else if (holds) {
    core->drop_long(base, static_cast<uint64_t>(size));
  }
  return error;
}

int serve_Win_detach(MPI_Win win, const void* base, Entry entry) {
  const InsideLibrary inside;
  const int error = real.Win_detach[entry](win, base);
  if (node_registers && error == MPI_SUCCESS && base != nullptr) {
    forget_registered(win, base);
  }
  return error;
}

#define HEADROOM_WIN_CREATE(Create, Allocate, Unit)                                                                        \
  int serve_##Create(void* base, MPI_Aint size, Unit disp_unit, MPI_Info info, MPI_Comm comm, MPI_Win* win, Entry entry) { \
    return create_window(real.Create[entry], base, size, disp_unit, info, comm, win);                                      \
  }                                                                                                                        \
  int serve_##Allocate(MPI_Aint size, Unit disp_unit, MPI_Info info, MPI_Comm comm, void* baseptr, MPI_Win* win,           \
                       Entry entry) {                                                                                      \
    return allocate_window(real.Create[entry], real.Allocate[entry], size, disp_unit, info, comm, baseptr, win);           \
  }

HEADROOM_WIN_CREATE(Win_create, Win_allocate, int)
HEADROOM_WIN_CREATE(Win_create_c, Win_allocate_c, MPI_Aint)

int serve_Win_free(MPI_Win* win, Entry entry) {
  Window* window = direct_on ? window_of(*win) : nullptr;
  const MPI_Win handle = *win;
  if (window != nullptr) {
    wait_for_all(*window);
    const base::LockHolder lock(look_up_lock);
    window_cache[number_of(*win) % kCacheEntries].store(nullptr, std::memory_order_relaxed);
    Window* before = windows.load(std::memory_order_relaxed);
    if (before == window) {
      windows.store(window->next, std::memory_order_release);
    } else {
      for (; before->next != window; before = before->next) {
      }
      before->next = window->next;
    }
  }
  int error = MPI_SUCCESS;
  {
    const InsideLibrary inside;
    const WaysMayChange change;
    const WithoutSlot waiting;
    if (window != nullptr) {
      real.Group_free[1](&window->group);
    }
    error = real.Win_free[entry](win);
  }
  if (node_registers && error == MPI_SUCCESS) {
    forget_registered(handle, nullptr);
  }
  if (window != nullptr) {
    if (window->allocated != nullptr) {
      core->release(window->allocated);
    }
    drop_window(window);
  }
  return error;
}

int direct_Win_get_attr(Window& window, int win_keyval, void* attribute_val, int* flag) {
  if (win_keyval == MPI_WIN_CREATE_FLAVOR && window.flavor != 0) {
    *static_cast<int**>(attribute_val) = &window.flavor;
    *flag = 1;
    return MPI_SUCCESS;
  }
  if (win_keyval == MPI_WIN_BASE) {
    *static_cast<void**>(attribute_val) = window.base;
    *flag = 1;
    return MPI_SUCCESS;
  }
  if (win_keyval == MPI_WIN_SIZE) {
    *static_cast<MPI_Aint**>(attribute_val) = &window.bytes;
    *flag = 1;
    return MPI_SUCCESS;
  }
  const InsideLibrary inside;
  return real.Win_get_attr[1](window.handle.load(std::memory_order_relaxed), win_keyval, attribute_val, flag);
}

}  // namespace headroom::mpi
