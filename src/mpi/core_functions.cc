// The functions of the layers below that backends need, in one structure, so that a backend links against nothing but itself.
#include "mpi/core_functions.h"

#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cstdarg>
#include <initializer_list>
#include <new>

#include "base/launchers.h"
#include "base/log.h"
#include "base/system_calls.h"
#include "direct/waiting.h"
#include "heap/excluded_callers.h"
#include "heap/heap.h"
#include "heap/small_objects.h"
#include "mpi/library_environment.h"
#include "mpi/progress_hook.h"
#include "mpi/shortcuts.h"
#include "mpi/transports.h"
#include "pager/pager.h"
#include "sched/preemption.h"
#include "sched/scheduler.h"
#include "trace/counters.h"

namespace headroom::mpi {
namespace {

static_assert(sizeof(sched::Wait) <= 64);
constexpr int kPatienceMs = 5000;
void (*before_abort)() = nullptr;
bool tool_below = false;

/// The number that the launcher gives under one of these names of the environment.
int launched_number(std::initializer_list<const char*> names, int otherwise) {
  for (const char* name : names) {
    if (const char* value = getenv(name)) {
      return atoi(value);
    }
  }
  return otherwise;
}

/// How many ranks an mpiexec has started. (A resource manager's number of tasks may be about a batch script, or about programs
/// that are meant to be alone.)
int launched_ranks() { return launched_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 1); }

/// Ends the process because its launcher is another MPI's. One process of a node says so, and stays for the others to see that
/// it has; they give it time to, since the launcher may end all when one of them ends. Nothing has run: there is no report.
[[noreturn]] __attribute__((format(printf, 1, 2))) void die_by_launcher(const char* format, ...) {
  constexpr timespec kTimeForTheOthers = {1, 0};
  const bool is_running = pager::is_running();
  if (!is_running || pager::session().ledger->told_of_launcher.exchange(1, std::memory_order_relaxed) == 0) {
    char text[768];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    base::log_error("%s", text);
  }
  if (is_running) {
    node::announce_failure(pager::session());
  }
  (void)base::system_call(SYS_nanosleep, &kTimeForTheOthers, nullptr);
  for (;;) {
    (void)base::system_call(SYS_exit_group, 2);
  }
}

bool is_loaded(const char* part_of_name) {
  return dl_iterate_phdr(
             [](dl_phdr_info* object, size_t, void* part) {
               return object->dlpi_name != nullptr && strstr(object->dlpi_name, static_cast<const char*>(part)) != nullptr ? 1
                                                                                                                           : 0;
             },
             const_cast<char*>(part_of_name)) != 0;
}

/// Open MPI's launcher speaks PMIx; an MPICH that does not would end in MPI_Init, and say that it does not know this version of
/// PMI. (The other way round MPI_Init succeeds: after_init() finds N times rank 0 of 1.)
void refuse_launcher_of_open_mpi(const char* abi) {
  const bool is_open_mpis = getenv("OMPI_COMM_WORLD_SIZE") != nullptr && getenv("PMI_RANK") == nullptr;
  if (is_open_mpis && launched_ranks() > 1 && strcmp(abi, "openmpi") != 0 && !is_loaded("/libpmix.so")) {
    die_by_launcher(
        "Open MPI's launcher started this program as one of %d ranks, but it uses another MPI (%s); start it with that MPI's "
        "own mpiexec, or without one: `headroom run -n %d --mpi %s ...`",
        launched_ranks(), abi, launched_ranks(), abi);
  }
}

/// Of the node's cards, in words.
void write_names(const Cards& cards, char* out, size_t room) {
  const struct {
    bool is_there;
    const char* name;
  } names[] = {{cards.infiniband, "RDMA cards"},
               {cards.efa, "EFA"},
               {cards.hfi1, "Omni-Path"},
               {cards.cxi, "Slingshot"},
               {cards.gni, "Aries"},
               {cards.xpmem, "XPMEM"},
               {cards.knem, "KNEM"}};
  size_t filled = 0;
  out[0] = 0;
  for (const auto& each : names) {
    if (each.is_there && filled < room) {
      filled += static_cast<size_t>(snprintf(out + filled, room - filled, "%s%s", filled > 0 ? ", " : "", each.name));
    }
  }
}

/// Says, once a node, what becomes of its cards and of the user's settings.
void tell_of_transports(const Cards& cards, const char* library) {
  const bool attaches = pager::engine_serves_kernel();
  const char* const said = overridden_settings();
  if ((!cards.are_any() && *said == 0) ||
      pager::session().ledger->told_of_transports.exchange(1, std::memory_order_relaxed) != 0) {
    return;
  }
  char names[128];
  write_names(cards, names, sizeof names);
  const bool copies = cards.infiniband && does_ucx_copy(cards, library);
  base::log_warning("%s%s%s%s%s%s",
                    cards.are_any() ? "this node has " : "the fault engine in use does not let ranks attach to ",
                    cards.are_any() ? names : "each other's memory",
                    !cards.are_any() ? ""
                    : copies         ? ": UCX copies what goes through RDMA cards, the others are not used"
                                     : ": they are not used, since they would keep memory that moves",
                    attaches || !cards.are_any() ? "" : ", nor do libraries attach to other ranks' memory",
                    *said != 0 ? "; of your settings were overridden: " : "", said);
}

void before_init(const char* abi, const char* version, const char* library) {
  const bool is_running = pager::start() == base::Status::kOk;
  refuse_launcher_of_open_mpi(abi);
  if (!is_running) {
    return;
  }
  base::log_debug(base::Part::kMpi, "MPI library %s (%s): %.*s", library != nullptr ? library : "?", abi,
                  static_cast<int>(strcspn(version, "\n")), version);
  if (base::settings().transports == base::TransportsChoice::kAsTheyAre) {
    return;
  }
  const Cards cards = find_cards();
  if (const char* why = why_it_cannot_copy(cards, version); why != nullptr && !heap::nothing_moves()) {
    base::die(
        "%s: memory that moves would lose data. Start with --large 1T --small off --static-data off, so that nothing moves, or "
        "use another MPI library",
        why);
  }
  // Done before the program began; but it may have changed the environment since, and the library is known now.
  make_transports_copy(cards, pager::engine_serves_kernel(), library);
  pager::expect_registrations(cards.register_memory());
  tell_of_transports(cards, library);
}

/// The library is about to be used by Headroom itself, collectively: a rank that is not under Headroom would take that for
/// something else, and wait for ever or worse. Ranks join before the library's own MPI_Init, so nobody waits here in order.
void check_that_all_are_here() {
  const int local = launched_number({"MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"}, 0);
  const std::atomic<uint32_t>& alive = pager::session().ledger->alive;
  for (int waited_ms = 0; static_cast<int>(alive.load(std::memory_order_relaxed)) < local; waited_ms += 10) {
    if (waited_ms >= kPatienceMs) {
      base::die(
          "only %u of the %d ranks that the launcher started on this node found each other: either not all of them were "
          "started with `headroom run`, or they run in containers of their own; start all of them alike",
          alive.load(std::memory_order_relaxed), local);
    }
    const timespec time = {0, 10'000'000};
    (void)base::system_call(SYS_nanosleep, &time, nullptr);
  }
}

void refuse_singletons(const char* abi) {
  die_by_launcher(
      "the launcher started %d processes, but this one is \"rank 0 of 1\", alone: the program was built for another MPI (%s) "
      "than the launcher's; start it with that MPI's own mpiexec, or without one: `headroom run -n %d --mpi %s ...`",
      launched_ranks(), abi, launched_ranks(), abi);
}

/// Under a resource manager, where programs may be meant to be alone.
void warn_of_singletons(const char* abi) {
  if (pager::session().ledger->told_of_launcher.exchange(1, std::memory_order_relaxed) == 0) {
    base::log_warning(
        "the launcher calls this process rank %s, but it is \"rank 0 of 1\": if it was not meant to be alone, its MPI (%s) "
        "does not speak the launcher's protocol; start it with that MPI's own mpiexec",
        base::launched_rank(), abi);
  }
}

/// Notes what is known of this process's MPI library, once it has begun.
void library_began(const char* abi, bool spins) {
  sched::program_begins(spins);
  sched::watch_long_turns();
  if (pager::is_running()) {
    strncpy(pager::session().self->abi, abi, sizeof pager::session().self->abi - 1);
    (void)sched::mode();
  }
}

/// A program that uses sessions alone has no rank of MPI_COMM_WORLD; the launcher's number stands for it.
void after_session_init(const char* abi, bool spins) {
  library_began(abi, spins);
  if (pager::is_running() && pager::session().self->rank.load(std::memory_order_relaxed) < 0) {
    const char* const launched = base::launched_rank();
    const int rank = launched != nullptr ? atoi(launched) : -1;
    base::set_log_rank(rank);
    pager::session().self->rank.store(rank, std::memory_order_relaxed);
    heap::begin_with_smaller_ones();
  }
}

void after_init(int rank, int size, const char* abi, bool spins) {
  base::set_log_rank(rank);
  library_began(abi, spins);
  if (!pager::is_running()) {
    return;
  }
  pager::session().self->rank.store(rank, std::memory_order_relaxed);
  pager::session().self->in_mpi.store(static_cast<uint32_t>(node::MpiState::kInside), std::memory_order_relaxed);
  if (size == 1 && launched_ranks() > 1) {
    refuse_singletons(abi);
  } else if (size == 1 && base::launched_rank() != nullptr && atoi(base::launched_rank()) > 0) {
    warn_of_singletons(abi);
  }
  if (size > 1) {
    check_that_all_are_here();
  }
  heap::begin_with_smaller_ones();
}

/// The work of the program's MPI_Abort before the library's.
void report_before_abort() {
  if (before_abort != nullptr) {
    before_abort();
  }
}

/// Says why Headroom ends the job. `by_messages`: perhaps since a rank has ended whose supervisor has not said so yet.
/// Launchers end all processes when one ends, so it is given the time to.
void before_ending_job(const char* what, const char* why, bool by_messages) {
  base::log_error("%s failed: %s. The other ranks wait for it, so the job ends%s", what, why,
                  by_messages ? "; if one of them has ended before, its own message says why" : "");
  if (by_messages) {
    timespec time_for_the_others = {1, 0};
    while (base::system_call(SYS_nanosleep, &time_for_the_others, &time_for_the_others) == -EINTR) {
    }
  }
  report_before_abort();
}

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
    pager::session().self->nonblocking_collectives.store(on ? 1 : 0, std::memory_order_relaxed);
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
bool wants_between() {
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
    wants_between,
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

void prepare_environment() {
  const base::Settings& settings = base::settings();
  const bool moves = settings.memory != 0 && *settings.storage != 0;
  if (moves && settings.transports == base::TransportsChoice::kCopy) {
    make_transports_copy(find_cards(), pager::engine_will_serve_kernel(), nullptr);
  }
}

void call_before_abort(void (*function)()) { before_abort = function; }

}  // namespace headroom::mpi
