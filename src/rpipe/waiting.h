// Waiting for a peer: spin, let others have the processor, sleep until the peer rings.
//
//   Waiter waiter(timeout);
//   while ((result = look()) == -EAGAIN) {
//     if (const int over = waiter.pause()) return over;
//   }
//
// Before a process sleeps it says so in its root and looks once more; a process that has changed something that a peer may wait
// for looks whether that one sleeps. Each has a full fence between what it writes and what it reads, so one of them sees the
// other (Dekker). A process has one bell, whatever its threads wait for: all look again when it rings.
//
// A process with a processor of its own spins for some 50 us, and yields for some milliseconds before it sleeps; one without
// does so hardly at all. No process sleeps longer than a tenth of a second: a peer that dies rings nobody; nor, with pipes to
// other nodes, half a millisecond: from there nobody rings either (mirror.h).
#pragma once

#include <cerrno>
#include <cstdint>

#include "base/system_calls.h"
#include "rpipe/descriptor.h"
#include "rpipe/host.h"
#include "rpipe/peers.h"

namespace headroom::rpipe {

class Waiter {
 public:
  /// `timeout_ns` as in rpipe.h.
  explicit Waiter(int64_t timeout_ns) : timeout_ns_(timeout_ns) {}
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  /// 0: look again. -EAGAIN or -ETIMEDOUT: the time is over.
  int pause();
  /// Whether it has just slept, or has waited for so long that a look at what is rare costs nothing: whether a peer has died.
  [[nodiscard]] bool is_long() const { return is_long_; }
  /// Whether it has given the peer time to do something: it has yielded, after it spun.
  [[nodiscard]] bool is_patient() const;
  [[nodiscard]] uint32_t sleeps() const { return sleeps_; }

 private:
  void sleep(int64_t most_ns);

  const int64_t timeout_ns_;
  uint64_t began_ns_ = 0;
  uint32_t looks_ = 0;
  uint32_t bell_ = 0;
  uint32_t sleeps_ = 0;
  bool announced_ = false;
  HostWait host_wait_;
  bool is_long_ = false;
};

/// Rings the process whose root that is, if it sleeps. After something was written that it may wait for, and a full fence,
/// which pairs with the one in Waiter::pause().
inline void ring_after_fence(Root& root) {
  // seq_cst: after the fence's write, on processors too whose exchanges are no full fences for what follows.
  if (root.sleeps.load(std::memory_order_seq_cst) == 0) {
    return;
  }
  const uint32_t how = root.sleeps.exchange(0, std::memory_order_relaxed);
  if ((how & kAsleep) != 0) {
    root.bell.fetch_add(1, std::memory_order_release);
    base::futex_wake(&root.bell, INT32_MAX, true);
  }
  if ((how & kArmed) != 0) {
    ring_descriptor_of(root.rank);
  }
}

inline void ring(Root& root) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  ring_after_fence(root);
}

}  // namespace headroom::rpipe
