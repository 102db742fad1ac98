// The beginning and the end of a process under Headroom: the preloaded library's constructor and destructor.
//
// Beginning: settings are read, names that the MPI library lacks are hidden, large static data is moved, and from then on
// large allocations come from the arena. Everything else (the node session, the pager) starts when it is first needed, so a
// shell or a small tool that merely inherits the environment pays a few microseconds.
//
// End: the process leaves the node session; the last of a node writes the report. A forked child does neither.
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/settings.h"
#include "base/system_calls.h"
#include "heap/heap.h"
#include "heap/static_data.h"
#include "mpi/library.h"
#include "pager/pager.h"
#include "preload/report.h"

namespace headroom::preload {
namespace {

pid_t process_of_constructor = 0;

void before_fork() {
  heap::lock_for_fork();
  pager::before_fork();
}
void after_fork_in_parent() {
  pager::after_fork_in_parent();
  heap::unlock_after_fork();
}
void after_fork_in_child() {
  pager::after_fork_in_child();
  heap::disable_in_child();
  heap::unlock_after_fork();
}

/// This process ends by an error of Headroom's, or by MPI_Abort. A forked child is none of the node's, and a process that has
/// not joined either.
void end_by_error() {
  if (process_of_constructor == getpid() && node::announce_failure(pager::session())) {
    write_report(pager::session());
  }
}

/// Tells the supervisor that this library was loaded. HEADROOM_ACTIVE is the number of a descriptor; by now it may be another
/// file's, so it is asked for its name.
void sign(const char* descriptor) {
  char link[64];
  char name[64] = {};
  (void)snprintf(link, sizeof link, "/proc/self/fd/%s", descriptor);
  if (base::system_call(SYS_readlinkat, AT_FDCWD, link, name, sizeof name - 1) > 0 &&
      strncmp(name, "/memfd:headroom-signature", 25) == 0) {
    const int file = atoi(descriptor);
    (void)base::system_call(SYS_write, file, "x", 1);
    (void)base::system_call(SYS_close, file);
  }
}

__attribute__((constructor)) void begin_process() {
  const char* active = getenv("HEADROOM_ACTIVE");
  if (active == nullptr) {
    return;
  }
  sign(active);
  base::load_settings();
  process_of_constructor = getpid();
  base::set_death_hook(end_by_error);
  mpi::hide_absent_names();
  // Registered this early so that our handlers run first in the child: others may touch memory there.
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  heap::enable();
  if (base::settings().static_data == base::StaticDataChoice::kAuto) {
    heap::move_static_data();
  }
}

__attribute__((destructor)) void end_process() {
  if (process_of_constructor != getpid() || !pager::is_running()) {
    return;
  }
  pager::prepare_to_leave();
  // Whoever failed first has written it.
  if (node::leave_session(pager::session()) && pager::session().ledger->failed_at_ns.load(std::memory_order_acquire) == 0) {
    write_report(pager::session());
  }
}

}  // namespace
}  // namespace headroom::preload
