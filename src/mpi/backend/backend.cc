// The backend: the interposed MPI functions, compiled once against each binary interface (the MPI library's mpi.h decides what
// a handle, a status and a constant are; nothing else differs).
//
// Calls that the MPI library makes to itself pass straight through. They are told three ways, since none is right alone: the
// caller lies in the library or a plug-in of it: inner; in a Fortran or C++ binding library: the program; elsewhere: inner
// only if it came by a PMPI_ name while this thread is inside the library (a tool's own forwarding). User callbacks
// (operations, attribute functions, error handlers) are the program's code and count as the program.
//
// How a rank waits: best inside the library's own blocking call, with the processor yielded in the library's progress loop
// (progress_hook.cc); nothing about messages or results changes then. Where a library that spins offers no such hook, a
// blocking call is its nonblocking form, polled. Whether a *collective* takes that form is never one rank's choice: it is
// agreed at MPI_Init for the whole job, and used on communicators whose group lies within MPI_COMM_WORLD's; others (spawned,
// accepted, joined jobs) keep the blocking form on all sides. Reductions take it only where the result cannot depend on the
// order of folding (MPICH 5.0.2 gives other sums by MPI_Iallreduce than by MPI_Allreduce, from 4 ranks on).
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "base/system_calls.h"
#include "base/threads_lock.h"
#include "mpi/trampolines.h"

namespace headroom::mpi {
namespace {

#include "real_functions.inc"

const CoreFunctions* core = nullptr;
bool direct_on = false;         // some messages do not enter the library (communicators.inc)
bool nonblocking_form = false;  // agreed at MPI_Init, as is
bool node_registers = false;    // the library registers memory with this node's network cards; nodes may differ
bool several_threads = false;   // may call: MPI_THREAD_MULTIPLE
base::CallingThreads* calling_threads = nullptr;
bool library_counts = false;     // collectives (collectives.inc)
bool reductions_direct = false;  // whether all reductions may be direct
int form_key = MPI_KEYVAL_INVALID;

// A variable of each thread's in the preloaded library, at the same distance from every thread's pointer.
intptr_t depth_offset = 0;
inline int& library_depth() { return *reinterpret_cast<int*>(static_cast<char*>(__builtin_thread_pointer()) + depth_offset); }

// The program's own code: most calls come from there.
uintptr_t program_begin = 0;
uintptr_t program_bytes = 0;

bool is_inner_at_length(int profiled, const void* caller);

inline bool is_inner(int profiled, const void* caller) {
  if (__builtin_expect(library_depth() == 0 && reinterpret_cast<uintptr_t>(caller) - program_begin < program_bytes, 1)) {
    return false;
  }
  return is_inner_at_length(profiled, caller);
}

bool is_inner_at_length(int profiled, const void* caller) {
  if (library_depth() == 0) {
    if (!core->is_mpi_library(caller)) {
      return false;
    }
  } else if (!core->is_mpi_library(caller) && !(profiled != 0 && core->is_program(caller))) {
    return false;
  }
  core->count_inner();
  return true;
}

/// Locks only where several threads may call MPI at once: an atomic operation waits until what was written before has reached
/// the other processors' caches, which is half of what sending a short message costs.
class LockAmongThreads {
 public:
  [[gnu::always_inline]] explicit LockAmongThreads(base::ThreadsLock& lock) : lock_(lock) {
    if (__builtin_expect(several_threads, 0)) {
      alone_ = enter(lock);
    }
  }
  [[gnu::always_inline]] ~LockAmongThreads() {
    if (__builtin_expect(several_threads, 0)) {
      lock_.leave(alone_);
    }
  }
  LockAmongThreads(const LockAmongThreads&) = delete;
  LockAmongThreads& operator=(const LockAmongThreads&) = delete;

 private:
  [[gnu::noinline]] static bool enter(base::ThreadsLock& lock) { return lock.enter(*calling_threads); }

  base::ThreadsLock& lock_;
  bool alone_ = false;
};

/// While one lives, this thread is inside the library: what it allocates is the library's.
class InsideLibrary {
 public:
  InsideLibrary() : depth_(library_depth()) { ++depth_; }
  ~InsideLibrary() { --depth_; }
  InsideLibrary(const InsideLibrary&) = delete;
  InsideLibrary& operator=(const InsideLibrary&) = delete;

 private:
  int& depth_;
};

/// The slot is given up around a call that may block and that is left to the library, and node-mates are looked after.
class WithoutSlot {
 public:
  WithoutSlot() {
    if (direct_on) {
      core->endpoint.go_away();
    }
    core->give_slot_up();
  }
  ~WithoutSlot() {
    core->take_slot();
    if (direct_on) {
      core->endpoint.come_back();
    }
  }
  WithoutSlot(const WithoutSlot&) = delete;
  WithoutSlot& operator=(const WithoutSlot&) = delete;
};

/// Around a blocking call of the library's outside turns: only a trace is told of the wait.
class WaitInLibrary {
 public:
  WaitInLibrary() { core->give_slot_up(); }
  ~WaitInLibrary() { core->take_slot(); }
  WaitInLibrary(const WaitInLibrary&) = delete;
  WaitInLibrary& operator=(const WaitInLibrary&) = delete;
};

/// Around a call that waits several times and computes little in between: its rank's turn comes at the end.
class SeveralWaits {
 public:
  explicit SeveralWaits(bool really = true) : really_(really) {
    if (really_) {
      core->begin_call_of_waits();
    }
  }
  ~SeveralWaits() {
    if (really_) {
      core->end_call_of_waits();
    }
  }
  SeveralWaits(const SeveralWaits&) = delete;
  SeveralWaits& operator=(const SeveralWaits&) = delete;

 private:
  bool really_;
};

/// Around calls after which there may be more ranks than before: then it is looked at anew how this one waits.
class WaysMayChange {
 public:
  WaysMayChange() = default;
  ~WaysMayChange() { core->choose_shortcuts(); }
  WaysMayChange(const WaysMayChange&) = delete;
  WaysMayChange& operator=(const WaysMayChange&) = delete;
};

void make_progress();

/// Whether a blocking call of the library's is to be polled: by how this rank waits, or since node-mates may need it meanwhile.
bool polls() { return core->polls() || (direct_on && core->endpoint.is_needed()); }

/// Polls until `poll` says that it is done or failed.
template <typename Poll>
int poll_until_done(Poll poll_library) {
  const auto poll = [&](int* flag) {
    if (direct_on) {
      make_progress();
    }
    return poll_library(flag);
  };
  alignas(16) char wait[64];
  int done = 0;
  int error = poll(&done);
  if (done != 0 || error != MPI_SUCCESS) {
    return error;
  }
  core->wait_begin(wait);
  do {
    core->wait_pause(wait);
    error = poll(&done);
  } while (done == 0 && error == MPI_SUCCESS);
  core->wait_end(wait);
  return error;
}

/// After a call that may find nothing: a program that polls in a loop counts as waiting after a while.
inline int after_poll(int error, bool found) {
  if (core->counts_polls()) {
    core->polled(found || error != MPI_SUCCESS, {});
  }
  return error;
}

/// What a look at one request or several found.
enum class Look {
  kNothing,  // none is active
  kPending,
  kSeen,  // complete, and it was seen before: by a call that ends nothing
  kDone
};

inline Look look_by(int flag) { return flag != 0 ? Look::kDone : Look::kPending; }

/// Polls the library by `look(profiled, error)`. The library makes progress for itself alone, and what the program looks for
/// may come only when a node-mate has had what it needs of this rank.
template <int kProfiled, typename PollOnce>
int poll_library(PollOnce look) {
  struct Polled {
    PollOnce& look;
    int error;
    Look found;
    [[nodiscard]] bool ends() const { return found != Look::kPending || error != MPI_SUCCESS; }
  };
  Polled polled = {look, MPI_SUCCESS, Look::kPending};
  polled.found = look(kProfiled, polled.error);
  const bool ends = polled.ends();
  if (direct_on && !ends) {
    make_progress();
  }
  if (core->counts_polls() && polled.found != Look::kNothing) {
    const auto again = [](void* what) {
      if (direct_on) {
        make_progress();
      }
      const InsideLibrary inside;
      auto& poll = *static_cast<Polled*>(what);
      poll.found = poll.look(1, poll.error);
      return poll.ends();
    };
    core->polled(ends && polled.found != Look::kSeen, {ends ? nullptr : +again, &polled});
  }
  return polled.error;
}

#include "error_handlers.inc"

void begin_datatypes();
#include "communicators.inc"
#include "datatypes.inc"
#include "direct_requests.inc"
#include "library_parts.inc"
#include "network.inc"

int finish_collective(MPI_Request& request) {
  core->count_nonblocking_collective();
  return poll_until_done([&](int* done) { return real.Test[1](&request, done, MPI_STATUS_IGNORE); });
}

/// Whether all of the communicator's processes were part of this MPI_COMM_WORLD; remembered on the communicator.
bool within_world(MPI_Comm comm) {
  int is_inter = 1;
  if (real.Comm_test_inter[1](comm, &is_inter) != MPI_SUCCESS || is_inter != 0) {
    return false;
  }
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  real.Comm_group[1](comm, &group);
  real.Comm_group[1](MPI_COMM_WORLD, &world);
  int size = 0;
  real.Group_size[1](group, &size);
  bool within = true;
  for (int rank = 0; rank < size && within; ++rank) {
    int translated = MPI_UNDEFINED;
    real.Group_translate_ranks[1](group, 1, &rank, world, &translated);
    within = translated != MPI_UNDEFINED;
  }
  real.Group_free[1](&group);
  real.Group_free[1](&world);
  return within;
}

bool takes_nonblocking_form(MPI_Comm comm) {
  if (!nonblocking_form || comm == MPI_COMM_NULL) {
    return false;
  }
  if (comm == MPI_COMM_WORLD) {
    return true;
  }
  void* value = nullptr;
  int found = 0;
  real.Comm_get_attr[1](comm, form_key, &value, &found);
  if (found == 0) {
    value = reinterpret_cast<void*>(static_cast<intptr_t>(within_world(comm) ? 1 : 2));
    real.Comm_set_attr[1](comm, form_key, value);
  }
  return reinterpret_cast<intptr_t>(value) == 1;
}

#include "operations.inc"

#include "collectives.inc"
#include "windows.inc"

// Of file_views.inc, which calls functions that are made below.
int give_view_of(MPI_File handle);
bool refuses_shared(MPI_File handle, MPI_Status* status);
bool refuses_shared(MPI_File handle, MPI_Request* request);

#include "wrappers.inc"

bool library_spins() {
  // Open MPI yields by itself where its launcher knows of more ranks than cores.
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  return real.Get_library_version[1] == nullptr || real.Get_library_version[1](version, &length) != MPI_SUCCESS ||
         strstr(version, "Open MPI") == nullptr;
}

/// Lets the library make progress, so that it is known whether its progress loop goes through Headroom's hook: MPI_Init may
/// return before a rank has polled its network once. (A probe of MPI_COMM_SELF would not poll the network.)
void make_some_progress() {
  constexpr int kProbes = 64;
  for (int probe = 0; probe < kProbes; ++probe) {
    int found = 0;
    real.Iprobe[1](MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
  }
}

/// Before the library's own MPI_Init: which it is, and where it lies, decides what it is told.
void before_library_begins() {
  static char version[MPI_MAX_LIBRARY_VERSION_STRING + 1];  // 8 KiB
  int length = 0;
  if (real.Get_library_version[1] == nullptr || real.Get_library_version[1](version, &length) != MPI_SUCCESS) {
    version[0] = 0;
  }
  Dl_info place = {};
  (void)dladdr(reinterpret_cast<void*>(real.Comm_rank[1]), &place);
  core->before_init(HEADROOM_ABI_NAME, version, place.dli_fname);
}

void agree_at_init() {
  int rank = 0;
  int size = 1;
  real.Comm_rank[1](MPI_COMM_WORLD, &rank);
  real.Comm_size[1](MPI_COMM_WORLD, &size);
  const bool spins = library_spins();
  library_counts = spins;  // both are so unless it is Open MPI
  core->after_init(rank, size, HEADROOM_ABI_NAME, spins);
  make_some_progress();
  node_registers = core->registers_memory();
  const int wanted = core->needs_nonblocking_form() ? 1 : 0;  // nodes may differ
  int agreed = wanted;
  if (size > 1) {
    real.Allreduce[1](&wanted, &agreed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  }
  nonblocking_form = agreed != 0;
  agree_on_direct(size);
  if (nonblocking_form) {
    real.Comm_create_keyval[1](MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &form_key, nullptr);
  }
  core->note_nonblocking_form(nonblocking_form);
  core->note_pins_of_library();
}

template <int kProfiled>
int wrap_Init(int* argc, char*** argv) {
  if (is_inner(kProfiled, __builtin_return_address(0))) {
    return real.Init[kProfiled](argc, argv);
  }
  const InsideLibrary inside;
  before_library_begins();
  const int error = real.Init[kProfiled](argc, argv);
  if (error == MPI_SUCCESS) {
    agree_at_init();
  }
  return error;
}

template <int kProfiled>
int wrap_Init_thread(int* argc, char*** argv, int required, int* provided) {
  if (is_inner(kProfiled, __builtin_return_address(0))) {
    return real.Init_thread[kProfiled](argc, argv, required, provided);
  }
  const InsideLibrary inside;
  before_library_begins();
  const int error = real.Init_thread[kProfiled](argc, argv, required, provided);
  if (error == MPI_SUCCESS) {
    agree_at_init();
  }
  return error;
}

template <int kProfiled>
int wrap_Session_init(MPI_Info info, MPI_Errhandler errhandler, MPI_Session* session) {
  if (is_inner(kProfiled, __builtin_return_address(0))) {
    return real.Session_init[kProfiled](info, errhandler, session);
  }
  const InsideLibrary inside;
  before_library_begins();
  const int error = real.Session_init[kProfiled](info, errhandler, session);
  if (error == MPI_SUCCESS) {
    core->after_session_init(HEADROOM_ABI_NAME, library_spins());
    node_registers = core->registers_memory();
    core->note_pins_of_library();
  }
  return error;
}

template <int kProfiled>
int wrap_Comm_create_from_group(MPI_Group group, const char* tag, MPI_Info info, MPI_Errhandler errhandler, MPI_Comm* comm) {
  const InsideLibrary inside;
  const WithoutSlot waiting;
  const int error = real.Comm_create_from_group[kProfiled](group, tag, info, errhandler, comm);
  if (error == MPI_SUCCESS && nonblocking_form && *comm != MPI_COMM_NULL) {
    // Made from a session: other members may know no MPI_COMM_WORLD, so its collectives keep the blocking form.
    real.Comm_set_attr[1](*comm, form_key, reinterpret_cast<void*>(intptr_t{2}));
  }
  return error;
}

#include "attributes_of_self.inc"

template <int kProfiled>
int wrap_Finalize() {
  if (is_inner(kProfiled, __builtin_return_address(0))) {
    return real.Finalize[kProfiled]();
  }
  delete_attributes_of_self<kProfiled>();
  end_direct();
  const InsideLibrary inside;
  const WithoutSlot waiting;
  nonblocking_form = false;
  const int error = real.Finalize[kProfiled]();
  core->after_finalize();
  return error;
}

/// The job ends here, and the library may end this process without any of its exit handlers.
template <int kProfiled>
int wrap_Abort(MPI_Comm comm, int errorcode) {
  if (!is_inner(kProfiled, __builtin_return_address(0))) {
    core->before_abort();
  }
  const InsideLibrary inside;
  return real.Abort[kProfiled](comm, errorcode);
}

#include "completion.inc"
#include "point_to_point.inc"

#include "file_messages.inc"

#include "file_driver.inc"

#include "files.inc"

#include "file_views.inc"

#include "file_calls.inc"

#include "file_alone.inc"

template <int kProfiled>
int wrap_Alloc_mem(MPI_Aint size, MPI_Info info, void* baseptr) {
  void* place = is_inner(kProfiled, __builtin_return_address(0)) || size < 0
                    ? nullptr
                    : core->allocate(static_cast<uint64_t>(size), direct_on);
  if (place == nullptr) {
    return real.Alloc_mem[kProfiled](size, info, baseptr);
  }
  memcpy(baseptr, &place, sizeof place);
  return MPI_SUCCESS;
}

template <int kProfiled>
int wrap_Free_mem(void* base) {
  return core->release(base) ? MPI_SUCCESS : real.Free_mem[kProfiled](base);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void headroom_backend_init(BackendRequest* request,
                                                                             const CoreFunctions* functions) {
  core = functions;
  depth_offset = reinterpret_cast<char*>(core->library_depth()) - static_cast<char*>(__builtin_thread_pointer());
  core->program_code(&program_begin, &program_bytes);
#define X(index, name)                                                                \
  real.name[0] = reinterpret_cast<decltype(+real.name[0])>(request->real[2 * index]); \
  real.name[1] = reinterpret_cast<decltype(+real.name[1])>(request->real[2 * index + 1]);
  HEADROOM_SERVED_FUNCTIONS(X)
#undef X
#define X(index, name)                                                         \
  if (request->real[2 * index] != nullptr) {                                   \
    request->wrapper[2 * index] = reinterpret_cast<void*>(wrap_##name<0>);     \
    request->wrapper[2 * index + 1] = reinterpret_cast<void*>(wrap_##name<1>); \
  }
  HEADROOM_WRAPPED_FUNCTIONS(X)
#undef X
}

}  // namespace headroom::mpi
