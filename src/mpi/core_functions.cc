// What backends need of the layers below, gathered in one structure, so that a backend links against nothing but itself.
#include "mpi/core_functions.h"

#include <stdlib.h>
#include <string.h>

#include <initializer_list>
#include <new>

#include "base/log.h"
#include "heap/excluded_callers.h"
#include "heap/heap.h"
#include "mpi/progress_hook.h"
#include "mpi/shortcuts.h"
#include "pager/pager.h"
#include "sched/scheduler.h"
#include "trace/counters.h"

namespace headroom::mpi {
namespace {

static_assert(sizeof(sched::Wait) <= 64);

/// Where the engine does not serve the kernel, MPI libraries must not touch a peer's memory by cross-memory attach: it would
/// fail on absent pages. Only what the user has not set is set.
void keep_processors_only() {
  setenv("OMPI_MCA_smsc", "^cma", 0);
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  setenv("MPIR_CVAR_CH4_CMA_ENABLE", "0", 0);
  setenv("UCX_TLS", "^cma", 0);
  setenv("FI_SHM_DISABLE_CMA", "1", 0);
}

void before_init() {
  if (pager::start() == base::Status::kOk && !pager::engine_serves_kernel()) {
    keep_processors_only();
  }
}

/// What the launcher says under one of these names of the environment.
int launched_number(std::initializer_list<const char*> names, int otherwise) {
  for (const char* name : names) {
    if (const char* value = getenv(name)) {
      return atoi(value);
    }
  }
  return otherwise;
}

int launched_ranks() {
  return launched_number({"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE", "SLURM_NTASKS", "PALS_SIZE"}, 1);
}

void explain_singletons(const char* abi) {
  if (pager::session().ledger->singletons.fetch_add(1, std::memory_order_relaxed) == 0) {
    base::log_warning(
        "the launcher started %d processes, but this one is \"rank 0 of 1\": the program was built for another "
        "MPI (%s) than the launcher's; start it with that MPI's own mpiexec, or use `headroom run -n %d ...`",
        launched_ranks(), abi, launched_ranks());
  }
}

/// What is known of this process's MPI library, once it has begun.
void library_began(const char* abi, bool spins) {
  sched::set_library_spins(spins);
  if (pager::is_running()) {
    strncpy(pager::session().self->abi, abi, sizeof pager::session().self->abi - 1);
    (void)sched::mode();
  }
}

/// A program that uses sessions alone has no rank of MPI_COMM_WORLD; the launcher's number stands for it.
void after_session_init(const char* abi, bool spins) {
  library_began(abi, spins);
  if (pager::is_running() && pager::session().self->rank.load(std::memory_order_relaxed) < 0) {
    const int rank = launched_number({"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID", "PALS_RANKID"}, -1);
    base::set_log_rank(rank);
    pager::session().self->rank.store(rank, std::memory_order_relaxed);
  }
}

void after_init(int rank, int size, const char* abi, bool spins) {
  base::set_log_rank(rank);
  library_began(abi, spins);
  if (!pager::is_running()) {
    return;
  }
  pager::session().self->rank.store(rank, std::memory_order_relaxed);
  if (size == 1 && launched_ranks() > 1) {
    explain_singletons(abi);
  }
}

void note_nonblocking_form(bool on) {
  if (pager::is_running()) {
    pager::session().self->nonblocking_collectives.store(on ? 1 : 0, std::memory_order_relaxed);
  }
  set_nonblocking_collectives(on);
}

void* allocate(uint64_t bytes) {
  if (bytes < heap::large_bytes || pager::start() != base::Status::kOk) {
    return nullptr;
  }
  return heap::allocate(bytes, arena::kPageBytes, false);
}

bool release(void* address) {
  if (!heap::owns(address)) {
    return false;
  }
  free(address);
  return true;
}

constexpr CoreFunctions kCore = {
    [](const void* caller) { return heap::caller_kind(caller) == heap::CallerKind::kMpiLibrary; },
    [](const void* caller) { return heap::caller_kind(caller) == heap::CallerKind::kProgram; },
    [] { return &heap::library_depth; },
    [] { return sched::mode() == sched::Mode::kTurns || (sched::mode() == sched::Mode::kYield && !progress_hook_works()); },
    [] { return sched::mode() != sched::Mode::kPass; },
    [](void* place) { new (place) sched::Wait; },
    [](void* place) { static_cast<sched::Wait*>(place)->pause(); },
    [](void* place) { static_cast<sched::Wait*>(place)->~Wait(); },
    sched::give_slot_up,
    sched::take_slot,
    sched::polled,
    before_init,
    after_init,
    after_session_init,
    choose_shortcuts,
    [] { return sched::mode() != sched::Mode::kPass && !progress_hook_works(); },
    note_nonblocking_form,
    [] { trace::count(trace::Counter::kCollectivesNonblocking); },
    [] { trace::count(trace::Counter::kMpiCallsInner); },
    allocate,
    release,
};

}  // namespace

const CoreFunctions& core_functions() { return kCore; }

}  // namespace headroom::mpi
