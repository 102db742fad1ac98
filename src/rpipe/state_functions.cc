// The functions of rpipe.h that tell something: which of many pipes is ready, how one stands, why it broke.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "headroom/rpipe.h"
#include "rpipe/descriptor.h"
#include "rpipe/export.h"
#include "rpipe/handle.h"

namespace headroom::rpipe {

namespace {

/// Whether a call on the pipe would return at once: there is a message, or room, or it is broken or closed.
bool is_ready(const ::rpipe* pipe, bool to_write) {
  End* const end = end_of(pipe);
  if (end == nullptr || (to_write ? !end->writes() : !end->reads())) {
    return true;
  }
  if (to_write) {
    return end->try_for_room();
  }
  const base::LockHolder lock(end->read_lock, end->is_for_threads());
  uint64_t bytes = 0;
  return end->try_peek(bytes) != -EAGAIN;
}

/// The first that is ready, from `first` on, around; -1 if there is none.
int find_ready(const rpipe_t* pipes, const unsigned char* write, int count, int first) {
  const bool some_mirrored = std::any_of(pipes, pipes + count, [](const ::rpipe* pipe) {
    const End* const end = end_of(pipe);
    return end != nullptr && end->peer().is_mirrored;
  });
  poll_mirrors(some_mirrored);
  for (int step = 0; step < count; ++step) {
    const int each = (first + step) % count;
    if (is_ready(pipes[each], write != nullptr && write[each] != 0)) {
      return each;
    }
  }
  return -1;
}

void look_for_deaths(const rpipe_t* pipes, int count) {
  for (int each = 0; each < count; ++each) {
    if (End* const end = end_of(pipes[each])) {
      (void)look_whether_dead(end->peer());
    }
  }
}

constexpr int64_t kUnconnectedNs = 50'000'000;

bool is_unconnected(const ::rpipe* pipe) {
  const End* const end = end_of(pipe);
  return end != nullptr && end->peer().root.load(std::memory_order_acquire) == nullptr;
}

/// After how long to look again if nobody rings. With any pipe to another node, messages on their way must be moved, too.
int64_t expiry_ns(bool some_unconnected) {
  constexpr int64_t kMirroredNs = 500'000;
  constexpr int64_t kLongestNs = 100'000'000;
  return has_mirrors.load(std::memory_order_relaxed) ? kMirroredNs : some_unconnected ? kUnconnectedNs : kLongestNs;
}

/// Looks whether peers have died that are not connected: others' connections tell. Not each time: it is a connection of its
/// own for each, which that one has to accept.
void look_for_deaths_of_unconnected(const rpipe_t* pipes, int count) {
  static std::atomic<uint64_t> last_ns{0};
  const uint64_t now_ns = base::monotonic_ns();
  if (now_ns - last_ns.load(std::memory_order_relaxed) < uint64_t{kUnconnectedNs}) {
    return;
  }
  last_ns.store(now_ns, std::memory_order_relaxed);
  for (int each = 0; each < count; ++each) {
    if (is_unconnected(pipes[each])) {
      (void)look_whether_dead(end_of(pipes[each])->peer());
    }
  }
}

/// A peer that is not connected cannot ring: while a pipe's peer is not, connections are waited for. -1 once all are, or the
/// time is over; `timeout_ns` is less by the time that this took.
int find_ready_while_unconnected(const rpipe_t* pipes, const unsigned char* write, int count, int first, int64_t& timeout_ns) {
  // The connected ones ring a bell that is not heard while connections are waited for.
  constexpr int64_t kLongestLookNs = 50'000'000;
  constexpr int64_t kShortLookNs = 1'000'000;
  const uint64_t began_ns = base::monotonic_ns();
  const int64_t whole_ns = timeout_ns;
  HostWait host_wait;
  for (;;) {
    const int found = find_ready(pipes, write, count, first);
    bool all_connected = true;
    bool some_connected = false;
    for (int each = 0; found < 0 && each < count; ++each) {
      Peer& peer = end_of(pipes[each])->peer();
      if (peer.root.load(std::memory_order_acquire) == nullptr) {
        all_connected = false;
        (void)look_whether_dead(peer);
      } else {
        some_connected = true;
      }
    }
    const int64_t left = whole_ns < 0 ? INT64_MAX : whole_ns - static_cast<int64_t>(base::monotonic_ns() - began_ns);
    timeout_ns = whole_ns < 0 ? whole_ns : std::max<int64_t>(left, 1);
    if (found >= 0 || all_connected || left <= 0) {
      return found;
    }
    host_wait.begin();
    wait_for_peers(std::min(left, some_connected ? kShortLookNs : kLongestLookNs));
  }
}

}  // namespace
}  // namespace headroom::rpipe

using namespace headroom::rpipe;  // NOLINT(google-build-using-namespace): this is its C face

extern "C" {

RPIPE_EXPORT int rpipe_wait_any(const rpipe_t* pipes, const unsigned char* write, int count, int* which, int64_t timeout_ns) {
  if (!has_begun()) {
    return -EBADF;
  }
  if (pipes == nullptr || count < 1 || which == nullptr) {
    return -EINVAL;
  }
  static std::atomic<int> last{-1};
  const int first = (last.load(std::memory_order_relaxed) + 1) % count;
  note_thread();
  int found = -1;
  if (timeout_ns != RPIPE_NOWAIT) {
    found = find_ready_while_unconnected(pipes, write, count, first, timeout_ns);
  }
  Waiter waiter(timeout_ns);
  while (found < 0 && (found = find_ready(pipes, write, count, first)) < 0) {
    if (const int over = waiter.pause()) {
      // A look whether a peer has died is a system call: not each time by a caller that only looks.
      static std::atomic<uint32_t> looks{0};
      if (timeout_ns == RPIPE_NOWAIT && looks.fetch_add(1, std::memory_order_relaxed) % End::kLooksPerDeath != 0) {
        return over;
      }
      look_for_deaths(pipes, count);
      found = find_ready(pipes, write, count, first);
      if (found < 0) {
        return over;
      }
    } else if (waiter.is_long()) {
      (void)look_for_peers();
      look_for_deaths(pipes, count);
    }
  }
  last.store(found, std::memory_order_relaxed);
  *which = found;
  return 0;
}

RPIPE_EXPORT int rpipe_descriptor() { return has_begun() ? descriptor() : -EBADF; }

RPIPE_EXPORT int rpipe_arm(const rpipe_t* pipes, const unsigned char* write, int count) {
  if (!has_begun()) {
    return -EBADF;
  }
  if (pipes == nullptr || count < 1) {
    return -EINVAL;
  }
  if (const int made = descriptor(); made < 0) {
    return made;
  }
  note_thread();
  arm_descriptor();
  (void)look_for_peers();
  // Before the look, which may connect some: of those nothing was heard yet.
  const bool some_unconnected = std::any_of(pipes, pipes + count, is_unconnected);
  if (some_unconnected) {
    look_for_deaths_of_unconnected(pipes, count);
  }
  if (find_ready(pipes, write, count, 0) >= 0) {
    return 1;
  }
  let_descriptor_expire(expiry_ns(some_unconnected));
  return 0;
}

RPIPE_EXPORT int rpipe_read_state(rpipe_t pipe, rpipe_state* state) {
  End* const end = end_of(pipe);
  if (end == nullptr) {
    return -EBADF;
  }
  if (state == nullptr || state->size < sizeof *state) {
    return -EINVAL;
  }
  if (end->peer().is_mirrored) {
    poll_mirrors(true);
  }
  const uint32_t size = state->size;
  *state = {};
  state->size = size;
  end->fill_state(*state);
  return 0;
}

RPIPE_EXPORT const char* rpipe_reason(rpipe_t pipe) {
  const End* const end = end_of(pipe);
  return end == nullptr ? "the pipe is closed, or another process's" : end->reason();
}

RPIPE_EXPORT const char* rpipe_error(int error) {
  switch (-error) {
    case 0:
      return "no error";
    case EINVAL:
      return "an argument is wrong";
    case EBADF:
      return "the pipe is closed, or another process's, or rpipe_init() was not called";
    case EPERM:
      return "the pipe does not go that way";
    case EPIPE:
      return "the peer has ended or closed its end";
    case EPROTO:
      return "the two ends do not fit";
    case EAGAIN:
      return "nothing there now";
    case ETIMEDOUT:
      return "the time is over";
    case EMSGSIZE:
      return "larger than the heap may be, or than there is room for";
    case ENOMEM:
      return "no memory";
    case EDEADLK:
      return "both ends wait for each other";
    case EALREADY:
      return "done before";
    case EFAULT:
      return "no such buffer";
    case EBUSY:
      return "buffers that were read were not freed";
    case ENOTSUP:
      return "it cannot be had here";
    case EMFILE:
      return "this process has no file descriptor left";
    default:
      return "an error of the system";
  }
}

}  // extern "C"
