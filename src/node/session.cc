// Joining, serving and leaving the node session; see session.h.
#include "node/session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>

#include "base/kernel_abi.h"
#include "base/log.h"
#include "base/own_descriptors.h"
#include "base/passed_descriptors.h"
#include "base/settings.h"
#include "base/system_calls.h"
#include "node/addresses.h"
#include "node/cores.h"
#include "node/retiring.h"
#include "node/watching.h"

namespace headroom::node {
namespace {

constexpr char kHello = 'H';  // with the descriptors that a newcomer needs

using base::log_warning;
using base::Status;
using base::system_call;

bool receive_descriptors(int connection, int (&descriptors)[3]) {
  pollfd waiting = {connection, POLLIN, 0};
  return poll(&waiting, 1, 1000) == 1 && base::receive_descriptors(connection, 0, descriptors).has_all;
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

/// How many places a session has that so many members are expected in.
int places_for(uint64_t processes) {
  int places = kFewestPlaces;
  while (places < kMaxMembers && static_cast<uint64_t>(places) < processes) {
    places *= 2;
  }
  return places;
}

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
  ledger->places = static_cast<uint32_t>(places_for(settings.processes));
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
  // bind() decides which process founds the session; the ledger is made before listen() lets others in.
  if (bind(listener, as_sockaddr(address), address.length) == 0 && found_session(session, listener) &&
      listen(listener, kMaxMembers) == 0) {
    return true;
  }
  base::close_own(listener);
  return false;
}

bool is_crowded(const Ledger& ledger) { return ledger.alive.load(std::memory_order_acquire) > ledger.cores(); }

bool take_member_slot(Session& session) {
  // Members that left keep their counters for the report; their places are taken again only when no fresh one is left.
  const MemberState reusable[] = {MemberState::kEmpty, MemberState::kLeft, MemberState::kDied};
  for (const MemberState wanted : reusable) {
    // A fresh place is the next one; it is used from the moment a process may take it.
    const bool is_fresh = wanted == MemberState::kEmpty;
    const auto last = static_cast<int>(is_fresh ? session.ledger->places : session.ledger->used_places.load());
    for (int index = 0; index < last; ++index) {
      Member& member = session.ledger->members[index];
      if (is_fresh) {
        note_used_places(*session.ledger, static_cast<uint32_t>(index) + 1);
      }
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
  path[std::max<long>(length, 0)] = 0;
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

/// A process that joined and then replaced its program by execve() joins anew; the memory of the old program is gone.
void retire_former_self(const Session& session) {
  for (Member& member : session.ledger->used_members()) {
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
    (void)base::send_descriptors(connection, kHello, {ledger_descriptor});
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
        "more than %u processes of this job are on this node, which is all that its session has places for; start with "
        "--processes N for N of them (%d at most), or spread them over more nodes",
        session.ledger->places, kMaxMembers);
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
  self.turns.run_state.store(static_cast<uint32_t>(RunState::kRunning), std::memory_order_relaxed);
  self.replacing.store(0, std::memory_order_relaxed);
  self.pager.armed.store(0, std::memory_order_relaxed);
  self.pager.arms.store(0, std::memory_order_relaxed);
  self.bring.state.store(0, std::memory_order_relaxed);
  self.memory.other_bytes.store(0, std::memory_order_relaxed);
  self.memory.beyond_bytes.store(0, std::memory_order_relaxed);
  self.memory.message_bytes.store(0, std::memory_order_relaxed);
  self.memory.asked_bytes.store(0, std::memory_order_relaxed);
  self.memory.answered_by.clear();
  self.memory.asked_by.clear();
  self.turns.slots_wanted.store(0, std::memory_order_relaxed);
  self.turns.working_set_bytes.store(0, std::memory_order_relaxed);
  self.turns.wants_all.store(0, std::memory_order_relaxed);
  self.pager.waits_for_storage_room.store(0, std::memory_order_relaxed);
  self.turns.read_page_at_ns.store(0, std::memory_order_relaxed);
  for (auto& counter : self.counters) {
    counter.store(0, std::memory_order_relaxed);
  }
  read_executable_name(self.executable, sizeof self.executable);
  const bool was_crowded = is_crowded(*session.ledger);
  add_cores(*session.ledger);
  const bool crowds = put_on(*session.ledger, self);
  session.ledger->joined.fetch_add(1, std::memory_order_acq_rel);
  // release: a process that sees it sees whose place it is now, and does not take it for its predecessor, which has died.
  (void)move_state(self, MemberState::kJoining, MemberState::kAlive);
  choose_watched(session);
  if (crowds || is_crowded(*session.ledger) != was_crowded) {
    ring_everybody(session);  // they wait in another way now
  } else {
    ring_watcher(session);  // the process that watched our successor should now watch us
  }
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
    (void)base::send_descriptors(connection, kHello,
                                 {ledger_descriptor, session.listen_descriptor, session.messages_descriptor});
  }
  base::close_own(connection);
}

Leaving leave_session(Session& session) {
  Member& self = *session.self;
  if (!move_state(self, MemberState::kAlive, MemberState::kLeaving)) {
    return Leaving::kHadLeft;
  }
  if (is_in_mpi(self)) {
    session.ledger->lost_at_ns.store(base::monotonic_ns(), std::memory_order_release);
  }
  session.ledger->held_slots.fetch_sub(self.turns.slots.exchange(0, std::memory_order_acq_rel), std::memory_order_acq_rel);
  note_ends_of_all(session);
  // Before the last one is known: a process that joins after that is none of those that have left.
  const uint32_t joined = session.ledger->joined.load(std::memory_order_acquire);
  const bool is_last = take_off(*session.ledger, self);
  return is_last && session.ledger->reported.exchange(joined, std::memory_order_acq_rel) != joined ? Leaving::kLast
                                                                                                   : Leaving::kLeft;
}

void return_to_session(Session& session) {
  if (move_state(*session.self, MemberState::kLeaving, MemberState::kAlive)) {
    if (put_on(*session.ledger, *session.self)) {
      ring_everybody(session);
    }
    ring(session, session.index);  // there may be another one to watch
  }
}

void abandon_session(Session& session) {
  if (session.self != nullptr && retire(session, *session.self, getpid(), MemberState::kAlive, MemberState::kLeft)) {
    ring_everybody(session);  // the process that watched this one should now watch the next
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
