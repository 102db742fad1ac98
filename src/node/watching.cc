// See watching.h.
//
// A pidfd tells that a member has ended. The memory and the slot of its member are given back (retiring.h), and an end that was
// not to be expected is reported.
#include "node/watching.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/log.h"
#include "base/own_descriptors.h"
#include "base/system_calls.h"
#include "node/addresses.h"
#include "node/retiring.h"
#include "node/wait_status.h"

namespace headroom::node {

using base::log_warning;
using base::system_call;

namespace {

constexpr uint64_t kPatienceNs = 5'000'000'000;  // launchers end a failed job within milliseconds, or never
constexpr uint64_t kMomentOfEndingNs = 20'000'000;

/// Of a rank its supervisor knows by which signal it ended, and may say so later.
void tell_of_rank(int rank, int pid, const char* program) {
  log_warning(
      "rank %d (process %d, %s) ended without leaving MPI; its memory and its turn were given back; its own message, or its "
      "supervisor's, says why",
      rank, pid, program);
}

/// Whether a process that is no rank was ended by something that is worth saying. The process that started it knows how it
/// ended; it may have ended by itself, though past us, or been told to, as a pool's workers are. If that cannot be told, its
/// parent has waited for it.
bool was_struck_down(int status) {
  const int number = status >= 0 && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return number != 0 && number != SIGTERM && number != SIGINT && number != SIGHUP && number != SIGPIPE;
}

/// The process that was this member's has ended, or become another program: takes back what it had, and says so if that was not
/// to be expected.
void note_end(const Session& session, Member& member, int process, int pidfd) {
  const int rank = member.rank.load(std::memory_order_relaxed);
  const int pid = member.pid.load(std::memory_order_relaxed);
  if (pid != process) {
    return;  // another member was faster, and another process has its place
  }
  if (is_missed(member)) {
    session.ledger->lost_at_ns.store(base::monotonic_ns(), std::memory_order_release);  // it may have ended before it could
  }
  // A member that has ended MPI, or has become another program outside MPI, may end as it likes.
  const bool is_rank = rank >= 0 || is_in_mpi(member);
  const int status = is_rank ? -1 : wait_status_of(pid, pidfd);
  const bool is_lost = !has_finalized(member) && (is_rank || was_struck_down(status)) &&
                       (is_in_mpi(member) || member.replacing.load(std::memory_order_relaxed) == 0);
  if (retire(session, member, process, MemberState::kLeaving, MemberState::kLeft)) {  // only now is its memory really gone
    return;
  }
  if (retire(session, member, process, MemberState::kAlive, is_lost ? MemberState::kDied : MemberState::kLeft) && is_lost) {
    // A process that ended by an error of Headroom's, or aborted the job, has said so.
    if (session.ledger->failed_at_ns.load(std::memory_order_acquire) == 0 &&
        session.ledger->reporter.load(std::memory_order_acquire) == 0) {
      if (is_rank) {
        tell_of_rank(rank, pid, member.executable);
      } else {
        log_warning("process %d (%s) was ended by signal %d (%s); its memory was given back", pid, member.executable,
                    WTERMSIG(status), strsignal(WTERMSIG(status)));
      }
    }
  }
}

/// Whether the process has ended, at the latest by then. False if that cannot be told.
bool has_ended(int process, uint64_t until_ns) {
  const long opened = system_call(SYS_pidfd_open, process, 0);
  if (base::is_error(opened)) {
    return opened == -ESRCH;
  }
  const int descriptor = base::own(opened);
  const uint64_t now = base::monotonic_ns();
  const timespec left = {0, now < until_ns ? static_cast<long>(until_ns - now) : 0};
  pollfd ended = {descriptor, POLLIN, 0};
  const bool is_over = system_call(SYS_ppoll, &ended, 1, &left, nullptr, 8) == 1;
  base::close_own(descriptor);
  return is_over;
}

}  // namespace

/// A process that ends past us, or becomes another program, is noticed by the one that watches it; but the last to leave may be
/// faster, and would leave the report to nobody. Whether one may be gone is known by its doorbell, which is not rung, so that
/// nobody is woken. That is no proof: a process that has gone to another network namespace finds no doorbell. So its own socket
/// is asked, which is of the namespace where it joined, or the process itself, which closes its doorbell a moment before it has
/// ended.
void note_ends_of_all(const Session& session) {
  const int file = base::own(system_call(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const uint64_t until_ns = base::monotonic_ns() + kMomentOfEndingNs;
  const auto places = static_cast<int>(session.ledger->used_members().size());
  for (int index = 0; index < places && file >= 0; ++index) {
    Member& member = session.ledger->members[index];
    const int pid = member.pid.load(std::memory_order_relaxed);
    if (index == session.index || !is_alive(member)) {
      continue;
    }
    const Address address = session_address(index);
    if (system_call(SYS_connect, file, &address.socket, address.length) != -ECONNREFUSED) {
      continue;
    }
    if (member.replacing.load(std::memory_order_acquire) != 0) {
      ring(session, index);
    } else if (has_ended(pid, until_ns)) {
      note_end(session, member, pid, -1);
    }
  }
  base::close_own(file);
}

void ring_watcher(const Session& session) {
  // Of two that join at once next to each other, the later one sees the other: both say that they are alive, then look.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const auto places = static_cast<int>(session.ledger->used_members().size());
  for (int step = 1; step < places; ++step) {
    const int index = (session.index + places - step) % places;
    const Member& member = session.ledger->members[index];
    if (is_alive(member)) {
      ring(session, index);
      return;
    }
    if (state_of(member) == MemberState::kLeaving && member.replacing.load(std::memory_order_relaxed) != 0) {
      ring(session, index);  // it may be another program by now, which is noticed so
    }
  }
}

void choose_watched(Session& session) {
  int next = -1;
  std::atomic_thread_fence(std::memory_order_seq_cst);  // see ring_watcher()
  const auto places = static_cast<int>(session.ledger->used_members().size());
  for (int step = 1; step < places; ++step) {
    const int index = (session.index + step) % places;
    const Member& member = session.ledger->members[index];
    const MemberState now = state_of(member);
    const bool has_process = now == MemberState::kAlive || now == MemberState::kLeaving;
    if (has_process && member.pid.load(std::memory_order_relaxed) != 0) {
      next = index;
      break;
    }
  }
  if (next == session.watched_index) {
    return;
  }
  base::close_own(session.watched_descriptor);
  session.watched_index = next;
  session.watched_descriptor = -1;
  if (next < 0) {
    return;
  }
  session.watched_pid = session.ledger->members[next].pid.load(std::memory_order_relaxed);
  const long descriptor = system_call(SYS_pidfd_open, session.watched_pid, 0);
  if (!base::is_error(descriptor)) {
    session.watched_descriptor = base::own(descriptor);
  } else if (descriptor == -ESRCH) {
    watched_ended(session);
  } else {
    session.watched_index = -1;  // no descriptors are left, say: tried again at the next ring
  }
}

void watched_ended(Session& session) {
  if (session.watched_index < 0) {
    return;
  }
  note_end(session, session.ledger->members[session.watched_index], session.watched_pid, session.watched_descriptor);
  base::close_own(session.watched_descriptor);
  session.watched_descriptor = -1;
  session.watched_index = -1;
  choose_watched(session);
}

void announce_failure(const Session& session) {
  uint64_t none = 0;
  if (session.ledger->failed_at_ns.compare_exchange_strong(none, base::monotonic_ns(), std::memory_order_acq_rel)) {
    ring_everybody(session);
  }
}

bool outlived_failure(const Session& session) {
  const uint64_t failed = session.ledger->failed_at_ns.load(std::memory_order_acquire);
  return failed != 0 && base::monotonic_ns() - failed > kPatienceNs;
}

bool outlived_loss(const Session& session) {
  const uint64_t lost = session.ledger->lost_at_ns.load(std::memory_order_acquire);
  return __builtin_expect(lost != 0, 0) && base::monotonic_ns() - lost > kPatienceNs;
}

}  // namespace headroom::node
