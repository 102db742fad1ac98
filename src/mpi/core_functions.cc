// The functions of the layers below that backends need, in one structure, so that a backend links against nothing but itself.
#include "mpi/core_functions.h"

#include <link.h>
#include <stdlib.h>

#include <new>

#include "base/log.h"
#include "base/system_calls.h"
#include "direct/waiting.h"
#include "heap/excluded_callers.h"
#include "heap/heap.h"
#include "heap/small_objects.h"
#include "mpi/library_life.h"
#include "mpi/progress_hook.h"
#include "mpi/shortcuts.h"
#include "pager/pager.h"
#include "sched/preemption.h"
#include "sched/scheduler.h"
#include "trace/counters.h"

namespace headroom::mpi {
namespace {

static_assert(sizeof(sched::Wait) <= 64);
bool tool_below = false;

bool registers_memory() { return pager::registrations_are_expected(); }

void say_no_room_for_window(uint64_t bytes) {
  base::log_error(
      "a window of %.1f MiB must stay in memory, since the MPI library registers it with a network card, and of this rank's "
      "share of --memory only %.1f MiB more may: MPI_ERR_NO_MEM. Raise --memory, or make windows of communicators inside a "
      "node",
      static_cast<double>(bytes) / (1 << 20), static_cast<double>(pager::long_hold_room()) / (1 << 20));
}

void note_nonblocking_form(bool on) {
  if (pager::is_running()) {
    pager::session().self->mpi.nonblocking_collectives.store(on ? 1 : 0, std::memory_order_relaxed);
  }
  set_nonblocking_collectives(on);
}

void* allocate(uint64_t bytes, bool however_small) {
  if (bytes == 0 || heap::nothing_moves() || (bytes < heap::large_bytes && !however_small) || heap::large_bytes == SIZE_MAX ||
      pager::start() != base::Status::kOk) {
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

/// Where the program's own code lies, libraries excluded.
void program_code(uintptr_t* begin, uintptr_t* bytes) {
  struct Range {
    uintptr_t begin = 0;
    uintptr_t end = 0;
  } range;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* found) {
        auto& code = *static_cast<Range*>(found);
        for (int index = 0; index < object->dlpi_phnum; ++index) {
          const ElfW(Phdr)& header = object->dlpi_phdr[index];
          if (header.p_type == PT_LOAD && (header.p_flags & PF_X) != 0) {
            code = {object->dlpi_addr + header.p_vaddr, object->dlpi_addr + header.p_vaddr + header.p_memsz};
          }
        }
        return 1;  // the program is the first
      },
      &range);
  *begin = range.begin;
  *bytes = range.end - range.begin;
}

NodePlace node_place() {
  if (tool_below) {
    if (base::settings().direct == base::DirectChoice::kOn) {
      base::die(
          "--direct on: a tool of the MPI profiling interface fetches its next functions by dlsym, so messages that bypass "
          "the MPI library would bypass it too");
    }
    return {0, -1};
  }
  if (!pager::is_running() || base::settings().direct == base::DirectChoice::kOff) {
    return {0, -1};
  }
  return {pager::session().ledger->id, pager::session().index};
}

/// The job has agreed whether messages inside nodes bypass the library.
void use_direct(bool on, bool refused) {
  if (refused && base::settings().direct == base::DirectChoice::kOn) {
    base::die(
        "--direct on: the ranks of a node cannot map each other's memory (is /proc/PID/fd of the other ranks readable, and "
        "`ulimit -v` unlimited?)");
  }
  base::log_debug(base::Part::kMpi, "messages inside the node: %s",
                  on        ? "direct"
                  : refused ? "the library's, since ranks cannot map each other's memory"
                            : "the library's, since direct ones were not asked for, or the tool below needs it");
  set_direct(on);
}

/// Whether the user wants messages between nodes to be matched by Headroom, whatever there is: a user who names how cards are
/// to read them does.
bool insists_on_between() {
  const base::RdmaChoice rdma = base::settings().rdma;
  return base::settings().between == base::BetweenChoice::kOwn ||
         (rdma != base::RdmaChoice::kAuto && rdma != base::RdmaChoice::kOff);
}

/// Whether they are to be.
bool try_to_open_between() {
  const bool insists = insists_on_between();
  return (insists || base::settings().between == base::BetweenChoice::kAuto) && (direct::endpoint().open_card() || insists);
}

/// The job has agreed whether Headroom matches messages between nodes.
void use_between(bool on, bool has_others) {
  if (has_others && !on && insists_on_between()) {
    base::die(
        "--between own: messages between nodes cannot be matched by Headroom, since not every rank asks for it or messages "
        "inside nodes are not direct (--direct on says why)");
  }
  base::log_debug(base::Part::kMpi, "messages between nodes: %s", on ? "matched by Headroom" : "the library's");
}

void count_passed(PassedFor why, uint64_t bytes) {
  switch (why) {
    case PassedFor::kOtherNode:
      trace::count(trace::Counter::kPassedForOtherNodesBytes, bytes);
      return trace::count(trace::Counter::kPassedForOtherNodes);
    case PassedFor::kCommunicator:
      trace::count(trace::Counter::kPassedForCommunicatorBytes, bytes);
      return trace::count(trace::Counter::kPassedForCommunicator);
    case PassedFor::kArguments:
      return trace::count(trace::Counter::kPassedForArguments);
    case PassedFor::kPartitions:
      return trace::count(trace::Counter::kPassedForPartitions);
  }
}

void count_passed_collective(CollectivePassedFor why, bool alone) {
  const trace::Counter counter = why == CollectivePassedFor::kOtherNodes     ? trace::Counter::kCollectivesPassedForOtherNodes
                                 : why == CollectivePassedFor::kCommunicator ? trace::Counter::kCollectivesPassedForCommunicator
                                                                             : trace::Counter::kCollectivesPassedForOperation;
  alone ? trace::count_alone(counter) : trace::count(counter);
}

static_assert(sizeof(direct::Waiting) <= 64);

const CoreFunctions kCore = {
    [](const void* caller) { return heap::caller_kind(caller) == heap::CallerKind::kMpiLibrary; },
    [](const void* caller) {
      const heap::CallerKind kind = heap::caller_kind(caller);
      return kind == heap::CallerKind::kProgram || kind == heap::CallerKind::kSystem;
    },
    [] { return &heap::library_depth; },
    program_code,
    [] { return sched::mode() == sched::Mode::kTurns || (sched::mode() == sched::Mode::kYield && !progress_hook_works()); },
    [] { return sched::mode() != sched::Mode::kPass; },
    [](void* place) { new (place) sched::Wait; },
    [](void* place) { static_cast<sched::Wait*>(place)->pause(); },
    [](void* place) { static_cast<sched::Wait*>(place)->~Wait(); },
    sched::give_slot_up,
    sched::take_slot,
    sched::begin_call_of_waits,
    sched::end_call_of_waits,
    sched::polled,
    before_init,
    after_init,
    after_session_init,
    [] {
      if (pager::is_running()) {
        pager::session().self->in_mpi.store(static_cast<uint32_t>(node::MpiState::kFinalized), std::memory_order_relaxed);
      }
    },
    report_before_abort,
    before_ending_job,
    choose_shortcuts,
    [] { return sched::mode() != sched::Mode::kPass && !progress_hook_works(); },
    note_nonblocking_form,
    [] { trace::count(trace::Counter::kCollectivesNonblocking); },
    [] { trace::count(trace::Counter::kMpiCallsInner); },
    allocate,
    release,
    node_place,
    sched::waiters_may_sleep,
    registers_memory,
    pager::note_pins_of_library,
    pager::try_long_hold,
    pager::drop_long_hold,
    say_no_room_for_window,
    [] { trace::count(trace::Counter::kReceivesOnBothWays); },
    count_passed,
    count_passed_collective,
    [](const int* members, int count) { return direct::endpoint().open(pager::session(), members, count); },
    [] { return base::settings().reductions == base::ReductionsChoice::kDirect; },
    try_to_open_between,
    use_between,
    [](bool alone) {
      alone ? trace::count_alone(trace::Counter::kCollectivesDirect) : trace::count(trace::Counter::kCollectivesDirect);
    },
    [] { trace::count(trace::Counter::kCollectivesStarted); },
    [] { trace::count(trace::Counter::kCollectivesStaged); },
    [] { trace::count(trace::Counter::kCollectivesByTally); },
    use_direct,
    [](void* place, bool (*poke)(), bool for_file) { new (place) direct::Waiting(poke, for_file); },
    [](void* place) { static_cast<direct::Waiting*>(place)->pause(); },
    [](void* place) { static_cast<direct::Waiting*>(place)->~Waiting(); },
    direct::endpoint_functions(),
    direct::window_functions(),
    collio::io_functions(),
};

}  // namespace

const CoreFunctions& core_functions() { return kCore; }

void note_tool_below() { tool_below = true; }

}  // namespace headroom::mpi
