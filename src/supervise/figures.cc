// See figures.h.
#include "supervise/figures.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/passed_descriptors.h"
#include "base/process_end.h"
#include "node/ledger.h"

namespace headroom::supervise {
namespace {

/// The descriptor that came with a connection's first byte; -1: none.
int receive_descriptor(int connection) {
  int descriptor[1] = {-1};
  (void)base::receive_descriptors(connection, MSG_DONTWAIT, descriptor);
  return descriptor[0];
}

/// Whether the process joined the node of this ledger and did not leave; it may live.
bool is_counted(int ledger_file, pid_t process) {
  struct stat status = {};
  if (fstat(ledger_file, &status) != 0 || status.st_size < static_cast<off_t>(sizeof(node::Ledger))) {
    return false;
  }
  void* place = mmap(nullptr, sizeof(node::Ledger), PROT_READ, MAP_SHARED, ledger_file, 0);
  if (place == MAP_FAILED) {
    return false;
  }
  const auto& ledger = *static_cast<const node::Ledger*>(place);
  bool found = false;
  if (node::is_of_this_version(ledger)) {
    for (const node::Member& member : ledger.used_members()) {
      found = found ||
              (member.pid.load(std::memory_order_relaxed) == process && member.counted.load(std::memory_order_acquire) == 1);
    }
  }
  munmap(place, sizeof(node::Ledger));
  return found;
}

/// The ledger that a process has handed in.
struct Figures {
  int ledger;
  pid_t process;
};
constexpr int kMostFigures = 2 * node::kMaxMembers;
Figures kept[kMostFigures];
int kept_count = 0;

/// Of a process that has left; and of `again`, which hands in anew: it has replaced its program.
void drop_figures(pid_t again) {
  for (int index = 0; index < kept_count;) {
    if (kept[index].process != again && is_counted(kept[index].ledger, kept[index].process)) {
      ++index;
      continue;
    }
    close(kept[index].ledger);
    kept[index] = kept[--kept_count];
  }
}

void run_reporter(int ledger_file, pid_t process) {
  char program[4096];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 32);
  program[std::max<long>(length, 0)] = 0;
  char* slash = strrchr(program, '/');
  if (slash == nullptr) {
    return;
  }
  strcpy(slash + 1, "headroom-ledger");
  char numbers[2][16];
  snprintf(numbers[0], sizeof numbers[0], "%d", ledger_file);
  snprintf(numbers[1], sizeof numbers[1], "%d", static_cast<int>(process));
  const pid_t reporter = fork();
  if (reporter == 0) {
    fcntl(ledger_file, F_SETFD, 0);
    unsetenv("LD_PRELOAD");
    execl(program, program, numbers[0], "ended", numbers[1], nullptr);
    _exit(127);
  }
  while (reporter > 0 && waitpid(reporter, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace

int open_figures() {
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  socklen_t length = sizeof address;
  constexpr int kMostWaiting = 128;
  // Bound to no name, it gets one of the kernel's.
  if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t)) != 0 ||
      listen(listener, kMostWaiting) != 0 || getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    close(listener);
    return -1;
  }
  char name[64];
  const int letters = static_cast<int>(length - offsetof(sockaddr_un, sun_path)) - 1;
  snprintf(name, sizeof name, "%.*s", letters, address.sun_path + 1);
  setenv("HEADROOM_FIGURES", name, 1);
  return listener;
}

void take_figures(int listener) {
  constexpr int kPatienceMs = 1000;  // a process that has connected sends at once, unless it is stopped
  for (;;) {
    const int connection = listener >= 0 ? accept4(listener, nullptr, nullptr, SOCK_CLOEXEC) : -1;
    if (connection < 0) {
      return;
    }
    ucred peer = {};
    socklen_t length = sizeof peer;
    const bool is_known = getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == getuid();
    pollfd sent = {connection, POLLIN, 0};
    const int ledger = is_known && poll(&sent, 1, kPatienceMs) == 1 ? receive_descriptor(connection) : -1;
    close(connection);
    drop_figures(peer.pid);
    if (ledger >= 0 && kept_count < kMostFigures) {
      kept[kept_count++] = {ledger, peer.pid};
    } else {
      close(ledger);
    }
  }
}

void see_to_figures(int listener) {
  take_figures(listener);
  drop_figures(0);
  for (int index = 0; index < kept_count; ++index) {
    if (base::has_ended(kept[index].process)) {
      run_reporter(kept[index].ledger, kept[index].process);
    }
  }
}

}  // namespace headroom::supervise
