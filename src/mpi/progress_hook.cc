// A library that spins while it waits polls its network in each round of its progress loop. MPICH does so by calling
// ucp_worker_progress() of UCX, a function of another shared library, so the call can be interposed like any other: when a
// round moved nothing, the processor is yielded.
//
// Nothing about messages or results changes, and every blocking call is covered, collectives and one-sided calls included.
// 8 ranks on 2 cores, MPICH 5.0.2, an 8-byte MPI_Allreduce: 22 ms plain (its own MPIR_CVAR_POLLS_BEFORE_YIELD changes
// nothing), 0.09 ms as MPI_Iallreduce polled with yields, 0.035 ms with this hook.
//
// Open MPI calls sched_yield() in each round that moved nothing, where there are more ranks than cores. That tells of waits
// that nothing else tells of: MPI_Put and MPI_Accumulate wait inside when the queues to the target are full. A rank that then
// kept its slot would wait for one that waits for a slot.
#include "mpi/progress_hook.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include <atomic>

#include "base/log.h"
#include "base/system_calls.h"
#include "sched/scheduler.h"

namespace headroom::mpi {
namespace {

using ProgressFunction = unsigned (*)(void*);
std::atomic<ProgressFunction> real_progress{nullptr};
std::atomic<bool> watching{true};

int find_ucp(dl_phdr_info* object, size_t, void* path) {
  const char* slash = object->dlpi_name != nullptr ? strrchr(object->dlpi_name, '/') : nullptr;
  if (slash == nullptr || strncmp(slash + 1, "libucp", 6) != 0) {
    return 0;
  }
  strncpy(static_cast<char*>(path), object->dlpi_name, 1023);
  return 1;
}

/// The real function: next in line, or, where the MPI library was loaded privately, from UCX's own handle.
ProgressFunction look_up() {
  void* found = dlsym(RTLD_NEXT, "ucp_worker_progress");
  char path[1024] = {};
  if (found == nullptr && dl_iterate_phdr(find_ucp, path) != 0) {
    if (void* handle = dlopen(path, RTLD_NOLOAD | RTLD_LAZY)) {
      found = dlsym(handle, "ucp_worker_progress");
    }
  }
  if (found == nullptr) {
    base::die("ucp_worker_progress is called, but no UCX library is loaded");
  }
  const auto function = reinterpret_cast<ProgressFunction>(found);
  real_progress.store(function, std::memory_order_relaxed);
  return function;
}

/// Whether the code at `caller` is Open MPI's progress loop. There are one or two such places; the last is remembered.
bool is_open_mpi(const void* caller) {
  static std::atomic<const void*> known{nullptr};
  static std::atomic<const void*> known_other{nullptr};
  if (known.load(std::memory_order_relaxed) == caller) {
    return true;
  }
  if (known_other.load(std::memory_order_relaxed) == caller) {
    return false;
  }
  Dl_info object = {};
  const bool is =
      dladdr(caller, &object) != 0 && object.dli_fname != nullptr && strstr(object.dli_fname, "libopen-pal") != nullptr;
  (is ? known : known_other).store(caller, std::memory_order_relaxed);
  return is;
}

}  // namespace

void watch_progress(bool on) { watching.store(on, std::memory_order_relaxed); }

bool progress_hook_works() { return real_progress.load(std::memory_order_relaxed) != nullptr; }

}  // namespace headroom::mpi

extern "C" __attribute__((visibility("default"))) unsigned ucp_worker_progress(void* worker) {
  using namespace headroom;
  mpi::ProgressFunction known = mpi::real_progress.load(std::memory_order_relaxed);
  if (__builtin_expect(known != nullptr && !mpi::watching.load(std::memory_order_relaxed), 1)) {
    return known(worker);  // a jump: between two ranks that have a core each, a few nanoseconds here would be noticed
  }
  known = known != nullptr ? known : mpi::look_up();
  const unsigned moved = known(worker);
  sched::progressed(moved != 0);
  return moved;
}

extern "C" __attribute__((visibility("default"))) int sched_yield() noexcept {
  using namespace headroom;
  if (__builtin_expect(sched::mode() == sched::Mode::kTurns, 0) && mpi::is_open_mpi(__builtin_return_address(0))) {
    sched::library_yielded();
  }
  return static_cast<int>(base::system_call(SYS_sched_yield));
}
