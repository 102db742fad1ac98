// The beginning and the end of a process under Headroom: the preloaded library's constructor and destructor.
//
// Beginning: settings are read, names that the MPI library lacks are hidden, large static data is moved, and from then on
// large allocations come from the arena. Everything else (the node session, the pager) starts when it is first needed, so a
// shell or a small tool that merely inherits the environment pays a few microseconds.
//
// End: the process leaves the node session; the last of a node writes the report. A forked child does neither.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/settings.h"
#include "base/system_calls.h"
#include "heap/allocation_sites.h"
#include "heap/heap.h"
#include "heap/held_calls.h"
#include "heap/leaving.h"
#include "heap/static_data.h"
#include "mpi/absent_names.h"
#include "mpi/library_life.h"
#include "pager/pager.h"
#include "preload/report.h"
#include "sched/scheduler.h"
#include "trace/recorder.h"

extern "C" int __register_atfork(void (*prepare)(), void (*parent)(), void (*child)(), void* library);
static headroom::heap::Real<decltype(&__register_atfork)> real_register_atfork("__register_atfork");

namespace headroom::preload {
namespace {

pid_t process_of_constructor = 0;

/// Whether begin_process() has run: a constructor of another library's may fork before.
bool has_begun() { return process_of_constructor != 0; }

/// The C library's lock of the list of all streams, which fork() takes after us. Its holder may be writing to memory that is
/// protected from here on until the child is there, and the child would never be. (It may be taken again by its owner.)
struct StreamListLock {
  void (*lock)() = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "_IO_list_lock"));
  void (*unlock)() = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "_IO_list_unlock"));
  void (*reset)() = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "_IO_list_resetlock"));
  [[nodiscard]] bool is_complete() const { return lock != nullptr && unlock != nullptr && reset != nullptr; }
};
StreamListLock* stream_list = nullptr;

void with_streams(void (*StreamListLock::*function)()) {
  if (stream_list != nullptr && stream_list->is_complete()) {
    (stream_list->*function)();
  }
}

void before_fork() {
  if (!has_begun()) {
    return;
  }
  with_streams(&StreamListLock::lock);
  heap::lock_for_fork();
  pager::before_fork();
}
void after_fork_in_parent() {
  if (!has_begun()) {
    return;
  }
  pager::after_fork_in_parent();
  heap::unlock_after_fork();
  with_streams(&StreamListLock::unlock);
}
void after_fork_in_child() {
  if (!has_begun()) {
    return;
  }
  with_streams(&StreamListLock::reset);  // the C library does so only if it has seen several threads
  pager::after_fork_in_child();
  heap::disable_in_child();
  heap::unlock_after_fork();
}

/// Once, and before those of anybody else.
void register_fork_handlers() {
  static bool registered = false;  // constructors run one after the other
  if (!registered) {
    registered = true;
    static StreamListLock found;
    stream_list = &found;
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  }
}

constexpr uint64_t kReportPatienceNs = 2'000'000'000;
constexpr uint64_t kReaderPatienceNs = 1'000'000'000;

/// A launcher that hears of the end before it has read the pipe drops its content: Hydra does, a few times in a hundred.
void wait_until_errors_are_read() {
  struct stat status = {};
  if (fstat(STDERR_FILENO, &status) != 0 || !S_ISFIFO(status.st_mode)) {
    return;
  }
  const uint64_t begin = base::monotonic_ns();
  int unread = 0;
  while (!base::is_error(base::system_call(SYS_ioctl, STDERR_FILENO, FIONREAD, &unread)) && unread > 0 &&
         base::monotonic_ns() - begin < kReaderPatienceNs) {
    const struct timespec pause = {0, 200'000};
    (void)base::system_call(SYS_nanosleep, &pause, nullptr);
  }
}

/// The first to fail writes the report; the others wait for it, since the launcher may end all when one of them ends.
void report_early() {
  pager::note_touched();
  node::Ledger& ledger = *pager::session().ledger;
  uint32_t none = 0;
  if (ledger.reporter.compare_exchange_strong(none, 1, std::memory_order_acq_rel)) {
    write_report(pager::session());
    wait_until_errors_are_read();
    ledger.reporter.store(2, std::memory_order_release);
    base::futex_wake(&ledger.reporter, node::kMaxMembers, true);
    return;
  }
  const uint64_t begin = base::monotonic_ns();
  while (ledger.reporter.load(std::memory_order_acquire) == 1 && base::monotonic_ns() - begin < kReportPatienceNs) {
    base::futex_wait(&ledger.reporter, 1, kReportPatienceNs / 10, true);
  }
  wait_until_errors_are_read();
}

/// This process ends by an error of Headroom's, or by MPI_Abort. A forked child is none of the node's, and a process that has
/// not joined either.
void end_by_error() {
  if (process_of_constructor != getpid() || pager::session().ledger == nullptr || pager::session().self == nullptr) {
    return;
  }
  node::announce_failure(pager::session());
  report_early();
}
void end_by_abort() {
  if (process_of_constructor == getpid() && pager::is_running()) {
    report_early();
  }
}

/// Leaves the node; the last to do so writes the report, unless one failed before, which has written it. False if this
/// process had left.
bool leave_node() {
  pager::note_touched();
  pager::note_other_memory();
  const node::Leaving leaving = node::leave_session(pager::session());
  if (leaving == node::Leaving::kLast && pager::session().ledger->reporter.load(std::memory_order_acquire) == 0) {
    write_report(pager::session());
  }
  return leaving != node::Leaving::kHadLeft;
}

/// A process that ends by _exit() or quick_exit(). One that does so inside MPI is missed like one that died: it has not left.
/// Signal handlers may end so, on a stack of their own that has no room for a report.
bool leave_node_at_once() {
  stack_t stack = {};
  (void)base::system_call(SYS_sigaltstack, nullptr, &stack);
  return (stack.ss_flags & SS_ONSTACK) == 0 && !node::is_in_mpi(*pager::session().self) && leave_node();
}

/// Tells the supervisor that this library was loaded. HEADROOM_ACTIVE is the number of a descriptor; by now it may be another
/// file's, so it is asked for its name.
void sign(const char* descriptor) {
  char link[64];
  char name[64] = {};
  (void)snprintf(link, sizeof link, "/proc/self/fd/%s", descriptor);
  if (base::system_call(SYS_readlinkat, AT_FDCWD, link, name, sizeof name - 1) > 0 &&
      strncmp(name, "/memfd:headroom-signature", 25) == 0 && base::file_may_have(1)) {
    const int file = atoi(descriptor);
    (void)base::system_call(SYS_write, file, "x", 1);
    (void)base::system_call(SYS_close, file);
  }
}

extern "C" char __bss_start[] __attribute__((visibility("hidden")));  // of this library; by the linker
extern "C" char _end[] __attribute__((visibility("hidden")));

/// Our tables are large and used here and there; where the system gives huge pages to every process they would be populated
/// whole.
void keep_tables_small() {
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(__bss_start) + 4095) / 4096 * 4096;
  const uintptr_t end = reinterpret_cast<uintptr_t>(_end) / 4096 * 4096;
  (void)base::system_call(SYS_madvise, begin, end - begin, MADV_NOHUGEPAGE);
}

__attribute__((constructor)) void begin_process() {
  const char* active = getenv("HEADROOM_ACTIVE");
  if (active == nullptr) {
    return;
  }
  keep_tables_small();
  heap::find_real_functions();
  sign(active);
  base::load_settings();
  process_of_constructor = getpid();
  base::set_death_hook(end_by_error);
  mpi::call_before_abort(end_by_abort);
  heap::how_to_leave = leave_node_at_once;
  mpi::hide_absent_names();
  mpi::before_program();
  register_fork_handlers();
  heap::enable();
  if (base::settings().static_data == base::StaticDataChoice::kAuto && !heap::nothing_moves()) {
    heap::move_static_data();
  }
}

__attribute__((destructor)) void end_process() {
  if (process_of_constructor != getpid() || !pager::is_running()) {
    return;
  }
  pager::prepare_to_leave();
  sched::leave_turns();  // here and not as it leaves the node, so that the trace has when its last turn ended
  if (trace::is_recording()) {
    heap::record_sites();
    trace::write_recorded();
  }
  (void)leave_node();
}

}  // namespace
}  // namespace headroom::preload

// Handlers run in the order in which they were registered, before the fork in the reverse one. Ours have to be the last before
// it, since a write of others to memory that is protected for the child waits for the child, and the first after it, since
// others may need memory. The constructors of other libraries run before ours: so at the first handler that is registered.
HEADROOM_EXPORT int __register_atfork(void (*prepare)(), void (*parent)(), void (*child)(), void* library) {
  if (getenv("HEADROOM_ACTIVE") != nullptr) {
    headroom::preload::register_fork_handlers();
  }
  return real_register_atfork.get()(prepare, parent, child, library);
}
