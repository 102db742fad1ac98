// See library_life.h.
#include "mpi/library_life.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cstdarg>
#include <initializer_list>

#include "base/launchers.h"
#include "base/log.h"
#include "base/system_calls.h"
#include "heap/heap.h"
#include "mpi/library.h"
#include "mpi/library_environment.h"
#include "mpi/transports.h"
#include "pager/pager.h"
#include "sched/preemption.h"
#include "sched/scheduler.h"

namespace headroom::mpi {
namespace {

constexpr int kPatienceMs = 5000;
void (*before_abort)() = nullptr;

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

/// Ends the process because of what is so for all of the node's. One process of a node says so, and stays for the others to see
/// that it has; they give it time to, since the launcher may end all when one of them ends. Nothing has run: there is no
/// report.
[[noreturn]] __attribute__((format(printf, 1, 2))) void die_once_a_node(const char* format, ...) {
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
    die_once_a_node(
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

/// What MPI_Get_library_version() says of the library that is linked; "" if there is none yet.
const char* version_of_linked_library() {
  static char version[8192];  // MPI_MAX_LIBRARY_VERSION_STRING of all libraries
  const Library library = find_library(nullptr);
  void* handle = library.abi != Abi::kNone ? dlopen(library.path, RTLD_NOLOAD | RTLD_LAZY) : nullptr;
  if (handle != nullptr) {
    int length = 0;
    const auto ask = reinterpret_cast<int (*)(char*, int*)>(dlsym(handle, "PMPI_Get_library_version"));
    if (ask == nullptr || ask(version, &length) != 0) {
      version[0] = 0;
    }
    dlclose(handle);
  }
  return version;
}

/// Says, once a node, that nothing moves.
void tell_that_nothing_moves(const char* why) {
  if (pager::session().ledger->told_of_transports.exchange(1, std::memory_order_relaxed) == 0) {
    base::log_warning(
        "%s, and memory that moves would lose data: so nothing moves to storage, as with --large 1T --small off --static-data "
        "off. Another MPI library would let it move",
        why);
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
  die_once_a_node(
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
    strncpy(pager::session().self->mpi.abi, abi, sizeof pager::session().self->mpi.abi - 1);
    (void)sched::mode();
  }
}

}  // namespace

void before_program() {
  const base::Settings& settings = base::settings();
  const bool moves = settings.memory != 0 && *settings.storage != 0;
  if (!moves || settings.transports == base::TransportsChoice::kAsTheyAre) {
    return;
  }
  const Cards cards = find_cards();
  if (cards.register_memory() && why_it_cannot_copy(cards, version_of_linked_library()) != nullptr) {
    (void)heap::let_nothing_move();  // if the user insists on what contradicts it, MPI_Init says so
  }
  if (!heap::nothing_moves()) {
    make_transports_copy(cards, pager::engine_will_serve_kernel(), nullptr);
  }
}

void before_init(const char* abi, const char* version, const char* library) {
  const bool is_running = pager::start() == base::Status::kOk;
  refuse_launcher_of_open_mpi(abi);
  if (!is_running) {
    return;
  }
  base::log_debug(base::Part::kMpi, "MPI library %s (%s): %.*s", library != nullptr ? library : "?", abi,
                  static_cast<int>(strcspn(version, "\n")), version);
  const Cards cards = find_cards();
  pager::watch_pins(cards.register_memory());
  if (base::settings().transports == base::TransportsChoice::kAsTheyAre) {
    return;
  }
  if (const char* why = why_it_cannot_copy(cards, version)) {
    if (!heap::let_nothing_move()) {
      die_once_a_node(
          "%s: memory that moves would lose data. Start with --large 1T --small off --static-data off, so that nothing moves, "
          "or use another MPI library",
          why);
    }
    if (!heap::user_lets_nothing_move()) {
      tell_that_nothing_moves(why);
    }
  }
  if (heap::nothing_moves()) {
    return;
  }
  // Done before the program began; but it may have changed the environment since, and the library is known now.
  make_transports_copy(cards, pager::engine_serves_kernel(), library);
  pager::expect_registrations(cards.register_memory());
  tell_of_transports(cards, library);
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

void report_before_abort() {
  if (before_abort != nullptr) {
    before_abort();
  }
}

void before_ending_job(const char* what, const char* why, bool by_messages) {
  base::log_error("%s failed: %s. The other ranks wait for it, so the job ends%s", what, why,
                  by_messages ? "; if one of them has ended before, its own message says why" : "");
  if (by_messages) {
    // Launchers end all processes when one ends, so the supervisor is given the time to speak.
    timespec time_for_the_others = {1, 0};
    while (base::system_call(SYS_nanosleep, &time_for_the_others, &time_for_the_others) == -EINTR) {
    }
  }
  report_before_abort();
}

void call_before_abort(void (*function)()) { before_abort = function; }

}  // namespace headroom::mpi
