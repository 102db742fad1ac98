// Joining, serving and leaving the node session; see session.h.
#include "node/session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/kernel_abi.h"
#include "base/log.h"
#include "base/own_descriptors.h"
#include "base/settings.h"
#include "base/system_calls.h"
#include "node/cores.h"
#include "node/wait_status.h"

namespace headroom::node {
namespace {

constexpr uint64_t kPatienceNs = 5'000'000'000;  // launchers end a failed job within milliseconds, or never
constexpr uint64_t kMomentOfEndingNs = 20'000'000;

using base::log_warning;
using base::Status;
using base::system_call;

struct Address {
  sockaddr_un socket = {};
  socklen_t length = 0;
};

/// Process ids mean something only inside their namespace, so processes of different ones never share a session.
uint64_t process_namespace() {
  struct stat status = {};
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

/// The abstract name of the session (index -1) or of a member's doorbell.
Address session_address(int index) {
  Address address;
  address.socket.sun_family = AF_UNIX;
  char* name = address.socket.sun_path + 1;
  const int room = sizeof address.socket.sun_path - 1;
  static const uint64_t name_space = process_namespace();
  int length = snprintf(name, static_cast<size_t>(room), "headroom-%u-%llx-%.56s", getuid(),
                        static_cast<unsigned long long>(name_space), base::settings().job);
  if (index >= 0) {
    length += snprintf(name + length, static_cast<size_t>(room - length), "-%d", index);
  }
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
  return address;
}

const sockaddr* as_sockaddr(const Address& address) { return reinterpret_cast<const sockaddr*>(&address.socket); }

template <size_t kCount>
void send_descriptors(int connection, const int (&descriptors)[kCount]) {
  char byte = 'H';
  iovec vector = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptors)] = {};
  msghdr message = {};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof descriptors);
  memcpy(CMSG_DATA(header), descriptors, sizeof descriptors);
  (void)system_call(SYS_sendmsg, connection, &message, MSG_NOSIGNAL);
}

bool receive_descriptors(int connection, int (&descriptors)[3]) {
  pollfd waiting = {connection, POLLIN, 0};
  if (poll(&waiting, 1, 1000) != 1) {
    return false;
  }
  char byte = 0;
  iovec vector = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptors)] = {};
  msghdr message = {};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (system_call(SYS_recvmsg, connection, &message, MSG_CMSG_CLOEXEC) < 1) {
    return false;
  }
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof descriptors)) {
    return false;
  }
  memcpy(descriptors, CMSG_DATA(header), sizeof descriptors);
  return true;
}

bool same_user(int connection) {
  ucred peer = {};
  socklen_t length = sizeof peer;
  // Not the library's function: that one is interposed, and looking up the real one in the pager thread could wait for a
  // program thread that is in dlopen() and waits for the pager.
  return !base::is_error(system_call(SYS_getsockopt, connection, SOL_SOCKET, SO_PEERCRED, &peer, &length)) &&
         peer.uid == getuid();
}

Ledger* map_ledger(int descriptor) {
  void* address = mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) {
    return nullptr;
  }
  madvise(address, sizeof(Ledger), MADV_DONTFORK);
  return static_cast<Ledger*>(address);
}

// Every member keeps the ledger's descriptor so that it can hand it on.
int ledger_descriptor = -1;

/// The file that members write messages for each other into; grows as it is used.
int make_messages_file() { return base::own(system_call(SYS_memfd_create, "headroom-messages", MFD_CLOEXEC)); }

bool found_session(Session& session, int listener) {
  const int descriptor = base::own(system_call(SYS_memfd_create, "headroom-ledger", MFD_CLOEXEC));
  if (descriptor < 0 || ftruncate(descriptor, sizeof(Ledger)) != 0) {
    return false;
  }
  Ledger* ledger = map_ledger(descriptor);
  if (ledger == nullptr) {
    return false;
  }
  const base::Settings& settings = base::settings();
  ledger->budget = static_cast<int64_t>(settings.memory);
  ledger->started_ns = base::monotonic_ns();
  (void)system_call(SYS_getrandom, &ledger->id, sizeof ledger->id, 0);
  ledger->asked_slots = static_cast<uint32_t>(settings.slots);
  ledger->quota_cores = quota_in_cores("/proc/self/cgroup", "/sys/fs/cgroup");
  ledger->free_bytes.store(ledger->budget, std::memory_order_relaxed);
  ledger->bytes = sizeof(Ledger);
  ledger->version = kLedgerVersion;
  ledger->magic = kLedgerMagic;
  session.ledger = ledger;
  session.listen_descriptor = listener;
  ledger_descriptor = descriptor;
  session.messages_descriptor = make_messages_file();
  return session.messages_descriptor >= 0;
}

/// One try: connect to the session, or found it. False: try again.
bool try_join(Session& session) {
  const Address address = session_address(-1);
  const int connection = base::own(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connection < 0) {
    return false;
  }
  if (connect(connection, as_sockaddr(address), address.length) == 0) {
    int descriptors[3] = {-1, -1, -1};
    const bool received = same_user(connection) && receive_descriptors(connection, descriptors);
    base::close_own(connection);
    if (!received) {
      return false;
    }
    session.ledger = map_ledger(descriptors[0]);
    ledger_descriptor = base::own(descriptors[0]);
    session.listen_descriptor = base::own(descriptors[1]);
    session.messages_descriptor = base::own(descriptors[2]);
    return session.ledger != nullptr && is_of_this_version(*session.ledger);
  }
  base::close_own(connection);
  const int listener = base::own(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (listener < 0) {
    return false;
  }
  // bind() is what decides who founds the session; the ledger is made before listen() lets anyone in.
  if (bind(listener, as_sockaddr(address), address.length) == 0 && found_session(session, listener) &&
      listen(listener, kMaxMembers) == 0) {
    return true;
  }
  base::close_own(listener);
  return false;
}

bool take_member_slot(Session& session) {
  // Members that left keep their counters for the report; their places are taken again only when no fresh one is left.
  const MemberState reusable[] = {MemberState::kEmpty, MemberState::kLeft, MemberState::kDied};
  for (const MemberState wanted : reusable) {
    for (int index = 0; index < kMaxMembers; ++index) {
      Member& member = session.ledger->members[index];
      uint32_t word = member.state.load(std::memory_order_acquire);
      if (state_in(word) != wanted || (member.pid.load(std::memory_order_relaxed) != 0 && wanted == MemberState::kEmpty)) {
        continue;
      }
      if (member.state.compare_exchange_strong(word, in_state(word + kOneUse, MemberState::kJoining),
                                               std::memory_order_acq_rel)) {
        session.index = index;
        session.self = &member;
        member.in_mpi.store(0, std::memory_order_relaxed);
        return true;
      }
    }
  }
  return false;
}

/// The last part of its path, as far as it fits; a letter of several bytes is not cut.
void read_executable_name(char* out, size_t bytes) {
  char path[4096];
  const long length = system_call(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", path, sizeof path - 1);
  path[length > 0 ? length : 0] = 0;
  const char* slash = strrchr(path, '/');
  const char* name = slash != nullptr ? slash + 1 : path;
  size_t kept = strnlen(name, bytes);
  if (kept == bytes) {
    for (--kept; kept > 0 && (static_cast<unsigned char>(name[kept]) & 0xc0U) == 0x80; --kept) {
    }
  }
  memcpy(out, name, kept);
  out[kept] = 0;
}

/// Tells everybody that there is room, and that something has changed.
void tell_everybody(const Session& session, const Member& of) {
  for (int index = 0; index < kMaxMembers; ++index) {
    Member& other = session.ledger->members[index];
    if (&other != &of && is_alive(other)) {
      other.slot_bell.fetch_add(1, std::memory_order_release);
      base::futex_wake(&other.slot_bell, 1, true);
      ring(session, index);
    }
  }
}

/// Moves a member on; false if it is in another state than `from`. For the member itself.
bool move_state(Member& member, MemberState from, MemberState to) {
  uint32_t word = member.state.load(std::memory_order_acquire);
  return state_in(word) == from && member.state.compare_exchange_strong(word, in_state(word, to), std::memory_order_acq_rel);
}

/// No longer one of `alive`; whether it was the last. Once, whoever does it: a process may be killed while it leaves.
bool take_off(Ledger& ledger, Member& member) {
  return member.counted.exchange(0, std::memory_order_acq_rel) == 1 &&
         ledger.alive.fetch_sub(1, std::memory_order_acq_rel) == 1;
}

void put_on(Ledger& ledger, Member& member) {
  ledger.alive.fetch_add(1, std::memory_order_acq_rel);
  member.counted.store(1, std::memory_order_release);  // pairs with take_off()
}

/// Takes back what the process had whose member this one has made kRetired, or somebody who has ended since. Its place is free
/// only when that is done: whoever took it before would lose what is his own. Who is told of it finds it so.
void finish_retiring(const Session& session, Member& member) {
  Ledger& ledger = *session.ledger;
  const uint32_t word = member.state.load(std::memory_order_acquire);
  release(ledger, member, member.reserved_bytes.load(std::memory_order_relaxed));
  note_beyond(ledger, member, 0);
  member.remote_write_target.store(0, std::memory_order_release);
  ledger.held_slots.fetch_sub(member.slots.exchange(0, std::memory_order_acq_rel), std::memory_order_acq_rel);
  (void)take_off(ledger, member);
  ledger.ended.store(1, std::memory_order_relaxed);
  const auto index = static_cast<int>(&member - ledger.members);
  for (Member& other : ledger.members) {  // it may have ended in the middle of this
    if (&other != &member && is_retired_by(other.state.load(std::memory_order_acquire), index)) {
      finish_retiring(session, other);
    }
  }
  if (next_in(word) == MemberState::kDied) {
    ledger.lost_at_ns.store(base::monotonic_ns(), std::memory_order_release);
  }
  member.state.store(in_state(word, next_in(word)), std::memory_order_release);
  tell_everybody(session, member);
}

/// Takes back what a process had that is gone; false if its member is not `from`, another one is at it, or the place is another
/// process's by now.
bool retire(const Session& session, Member& member, int process, MemberState from, MemberState to) {
  // acquire: pairs with the release in join_session(), so the pid is no older.
  uint32_t word = member.state.load(std::memory_order_acquire);
  if (state_in(word) != from || member.pid.load(std::memory_order_relaxed) != process ||
      !member.state.compare_exchange_strong(word, in_retirement(word, to, session.index), std::memory_order_acq_rel)) {
    return false;
  }
  finish_retiring(session, member);
  return true;
}

/// A process that joined and then replaced its program by execve() joins anew; what the old program held is gone.
void retire_former_self(const Session& session) {
  for (Member& member : session.ledger->members) {
    if (&member != session.self) {
      (void)(retire(session, member, getpid(), MemberState::kAlive, MemberState::kLeft) ||
             retire(session, member, getpid(), MemberState::kLeaving, MemberState::kLeft));
    }
  }
}

/// Hands the ledger to the supervisor, for the case that this process ends past us (supervise/figures.h). It waits in the
/// socket.
void leave_ledger_with_supervisor() {
  const char* name = getenv("HEADROOM_FIGURES");
  Address address;
  if (name == nullptr || strlen(name) + 2 > sizeof address.socket.sun_path) {
    return;
  }
  address.socket.sun_family = AF_UNIX;
  memset(address.socket.sun_path, 0, sizeof address.socket.sun_path);
  memcpy(address.socket.sun_path + 1, name, strlen(name));
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + strlen(name));
  const int connection = base::own(system_call(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connection < 0) {
    return;
  }
  if (!base::is_error(system_call(SYS_connect, connection, &address.socket, address.length)) && same_user(connection)) {
    send_descriptors(connection, {ledger_descriptor});
  }
  base::close_own(connection);
}

}  // namespace

Status join_session(Session& session) {
  for (int attempt = 0; attempt < 200 && session.ledger == nullptr; ++attempt) {
    if (!try_join(session)) {
      session.ledger = nullptr;
      usleep(attempt < 20 ? 1000 : 50000);
    }
  }
  if (session.ledger == nullptr) {
    log_warning(
        "cannot join the node session of job '%s'; its other processes have another version of Headroom, so let all use one; "
        "or "
        "memory or descriptors are short (`ulimit -n`)",
        base::settings().job);
    return Status::kUnavailable;
  }
  if (!take_member_slot(session)) {
    log_warning(
        "more than %d processes of this job are on this node, which is all that the ledger has places for; spread them over "
        "more nodes",
        kMaxMembers);
    return Status::kUnavailable;
  }
  session.doorbell_descriptor = base::own(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const Address address = session_address(session.index);
  if (session.doorbell_descriptor < 0 || bind(session.doorbell_descriptor, as_sockaddr(address), address.length) != 0) {
    log_warning("cannot make a doorbell socket: %s", strerror(errno));
    Member& place = *session.self;
    session.self = nullptr;  // before another process may have it
    session.index = -1;
    const bool was_used = place.pid.load(std::memory_order_relaxed) != 0;
    (void)move_state(place, MemberState::kJoining, was_used ? MemberState::kLeft : MemberState::kEmpty);
    return Status::kUnavailable;
  }
  retire_former_self(session);
  Member& self = *session.self;
  self.pid.store(getpid(), std::memory_order_release);
  self.rank.store(-1, std::memory_order_relaxed);
  self.run_state.store(static_cast<uint32_t>(RunState::kRunning), std::memory_order_relaxed);
  self.replacing.store(0, std::memory_order_relaxed);
  self.armed.store(0, std::memory_order_relaxed);
  self.arms.store(0, std::memory_order_relaxed);
  self.bring_state.store(0, std::memory_order_relaxed);
  self.other_bytes.store(0, std::memory_order_relaxed);
  self.beyond_bytes.store(0, std::memory_order_relaxed);
  self.message_bytes.store(0, std::memory_order_relaxed);
  self.asked_bytes.store(0, std::memory_order_relaxed);
  self.answered_by.clear();
  self.asked_by.clear();
  self.slots_wanted.store(0, std::memory_order_relaxed);
  self.working_set_bytes.store(0, std::memory_order_relaxed);
  self.wants_all.store(0, std::memory_order_relaxed);
  self.waits_for_storage_room.store(0, std::memory_order_relaxed);
  self.read_page_at_ns.store(0, std::memory_order_relaxed);
  for (auto& counter : self.counters) {
    counter.store(0, std::memory_order_relaxed);
  }
  read_executable_name(self.executable, sizeof self.executable);
  add_cores(*session.ledger);
  put_on(*session.ledger, self);
  session.ledger->joined.fetch_add(1, std::memory_order_acq_rel);
  // release: whoever sees it sees whose place it is now, and does not take it for its predecessor, who has died.
  (void)move_state(self, MemberState::kJoining, MemberState::kAlive);
  choose_watched(session);
  ring_everybody(session);  // whoever watched our successor should now watch us
  leave_ledger_with_supervisor();
  return Status::kOk;
}

void serve_newcomer(Session& session) {
  const int connection = base::own(system_call(SYS_accept4, session.listen_descriptor, nullptr, nullptr, SOCK_CLOEXEC));
  if (connection < 0) {
    if (connection != -EAGAIN) {  // no descriptors are left, say; else another member was faster
      usleep(1000);
    }
    return;
  }
  if (same_user(connection)) {
    send_descriptors(connection, {ledger_descriptor, session.listen_descriptor, session.messages_descriptor});
  }
  base::close_own(connection);
}

void ring(const Session& session, int index) {
  const Address address = session_address(index);
  const char byte = 1;
  Member& member = session.ledger->members[index];
  // Before it is rung: the doorbell that may be gone is this process's, not that of who takes its place.
  const int process = member.pid.load(std::memory_order_acquire);
  const long sent = system_call(SYS_sendto, session.doorbell_descriptor, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL, &address.socket,
                                address.length);
  if (sent == -ECONNREFUSED && member.replacing.load(std::memory_order_acquire) != 0 &&
      !retire(session, member, process, MemberState::kLeaving, MemberState::kLeft)) {
    // It has become another program.
    const bool is_missed = is_in_mpi(member);
    (void)retire(session, member, process, MemberState::kAlive, is_missed ? MemberState::kDied : MemberState::kLeft);
  }
}

void ring_everybody(const Session& session) {
  for (int index = 0; index < kMaxMembers; ++index) {
    const Member& member = session.ledger->members[index];
    const bool may_be_another =
        state_of(member) == MemberState::kLeaving && member.replacing.load(std::memory_order_relaxed) != 0;
    if (index != session.index && (is_alive(member) || may_be_another)) {
      ring(session, index);
    }
  }
}

void answer_doorbell(Session& session) {
  char bytes[64];
  while (system_call(SYS_recvfrom, session.doorbell_descriptor, bytes, sizeof bytes, MSG_DONTWAIT, nullptr, nullptr) > 0) {
  }
}

void choose_watched(Session& session) {
  int next = -1;
  for (int step = 1; step < kMaxMembers; ++step) {
    const int index = (session.index + step) % kMaxMembers;
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

namespace {

/// Of a rank its supervisor knows by which signal it ended, and may say so later.
void tell_of_rank(int rank, int pid, const char* program) {
  log_warning(
      "rank %d (process %d, %s) ended without leaving MPI; its memory and its turn were given back; its own message, or its "
      "supervisor's, says why",
      rank, pid, program);
}

/// Whether a process that is no rank was ended by something that is worth saying. Who started it knows how it ended; it may
/// have ended by itself, though past us, or been told to, as a pool's workers are. If that cannot be told, its parent has
/// waited for it.
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
    return;  // somebody else was faster, and another process has its place
  }
  if (is_missed(member)) {
    session.ledger->lost_at_ns.store(base::monotonic_ns(), std::memory_order_release);  // it may have ended before it could
  }
  // Who has ended MPI, or has become another program outside MPI, may end as it likes.
  const bool is_rank = rank >= 0 || is_in_mpi(member);
  const int status = is_rank ? -1 : wait_status_of(pid, pidfd);
  const bool is_lost = !has_finalized(member) && (is_rank || was_struck_down(status)) &&
                       (is_in_mpi(member) || member.replacing.load(std::memory_order_relaxed) == 0);
  if (retire(session, member, process, MemberState::kLeaving, MemberState::kLeft)) {  // only now is its memory really gone
    return;
  }
  if (retire(session, member, process, MemberState::kAlive, is_lost ? MemberState::kDied : MemberState::kLeft) && is_lost) {
    // Whoever ended by an error of Headroom's, or aborted the job, has said so.
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

/// Whoever ends past us, or becomes another program, is noticed by who watches it; but the last to leave may be faster, and
/// would leave the report to nobody. Who may be gone is known by its doorbell, which is not rung, so that nobody is woken. That
/// is no proof: a process that has gone to another network namespace finds no doorbell. So its own socket is asked, which is of
/// the namespace where it joined, or the process itself, which closes its doorbell a moment before it has ended.
void note_ends_of_all(const Session& session) {
  const int file = base::own(system_call(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const uint64_t until_ns = base::monotonic_ns() + kMomentOfEndingNs;
  for (int index = 0; index < kMaxMembers && file >= 0; ++index) {
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

}  // namespace

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

Leaving leave_session(Session& session) {
  Member& self = *session.self;
  if (!move_state(self, MemberState::kAlive, MemberState::kLeaving)) {
    return Leaving::kHadLeft;
  }
  if (is_in_mpi(self)) {
    session.ledger->lost_at_ns.store(base::monotonic_ns(), std::memory_order_release);
  }
  session.ledger->held_slots.fetch_sub(self.slots.exchange(0, std::memory_order_acq_rel), std::memory_order_acq_rel);
  note_ends_of_all(session);
  // Before the last one is known: who joins after that is none of those that have left.
  const uint32_t joined = session.ledger->joined.load(std::memory_order_acquire);
  const bool is_last = take_off(*session.ledger, self);
  return is_last && session.ledger->reported.exchange(joined, std::memory_order_acq_rel) != joined ? Leaving::kLast
                                                                                                   : Leaving::kLeft;
}

void return_to_session(Session& session) {
  if (move_state(*session.self, MemberState::kLeaving, MemberState::kAlive)) {
    put_on(*session.ledger, *session.self);
  }
}

void abandon_session(Session& session) {
  if (session.self != nullptr && retire(session, *session.self, getpid(), MemberState::kAlive, MemberState::kLeft)) {
    ring_everybody(session);  // whoever watched this process should now watch the next
  }
  forget_session_in_child(session);
}

void forget_session_in_child(Session& session) {
  const int descriptors[] = {session.listen_descriptor, session.doorbell_descriptor, session.watched_descriptor,
                             session.messages_descriptor, ledger_descriptor};
  for (const int descriptor : descriptors) {
    base::close_own(descriptor);
  }
  session = Session{};
  ledger_descriptor = -1;
}

}  // namespace headroom::node
