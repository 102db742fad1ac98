// How members reach each other: their sockets' names (addresses.h), and ringing (session.h).
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/own_descriptors.h"
#include "base/settings.h"
#include "base/system_calls.h"
#include "node/addresses.h"
#include "node/retiring.h"
#include "node/session.h"

namespace headroom::node {

using base::system_call;

namespace {

/// Process ids mean something only inside their namespace, so processes of different ones never share a session.
uint64_t process_namespace() {
  struct stat status = {};
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

}  // namespace

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

void ring(const Session& session, int index) {
  const Address address = session_address(index);
  const char byte = 1;
  Member& member = session.ledger->members[index];
  // Before it is rung: the doorbell that may be gone is this process's, not that of the member that takes its place.
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
  for (int next = 0; const Member& member : session.ledger->used_members()) {
    const int index = next++;
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

}  // namespace headroom::node
