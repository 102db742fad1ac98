// See descriptor.h.
#include "rpipe/descriptor.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "rpipe/peers.h"

namespace headroom::rpipe {

namespace {

using base::system_call;

struct Descriptors {
  int epoll = -1;
  int event = -1;  // by this process
  int timer = -1;
};

Descriptors made;
base::FutexLock lock;

void close_all() {
  for (int* const each : {&made.epoll, &made.event, &made.timer}) {
    if (*each >= 0) {
      (void)system_call(SYS_close, *each);
      *each = -1;
    }
  }
}

void before_fork() { lock.lock(); }
void after_fork_in_parent() { lock.unlock(); }
void after_fork_in_child() {
  lock.reset();
  close_all();
}

bool make_all() {
  static bool handles_forks = false;
  if (!handles_forks) {
    handles_forks = true;
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  }
  made.epoll = static_cast<int>(system_call(SYS_epoll_create1, EPOLL_CLOEXEC));
  made.event = static_cast<int>(system_call(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK));
  made.timer = static_cast<int>(system_call(SYS_timerfd_create, CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  bool has_all = made.epoll >= 0 && made.event >= 0 && made.timer >= 0;
  for (const int each : {made.event, made.timer}) {
    epoll_event event = {.events = EPOLLIN, .data = {}};
    has_all = has_all && system_call(SYS_epoll_ctl, made.epoll, EPOLL_CTL_ADD, each, &event) == 0;
  }
  return has_all && watch_connections(made.epoll);
}

/// Readable no longer.
void clear(int descriptor) {
  uint64_t count;
  (void)system_call(SYS_read, descriptor, &count, sizeof count);
}

}  // namespace

int descriptor() {
  const base::LockHolder holder(lock);
  if (made.epoll < 0 && !make_all()) {
    close_all();
    return -EMFILE;
  }
  return made.epoll;
}

void arm_descriptor() {
  const base::LockHolder holder(lock);
  const itimerspec never = {};
  (void)system_call(SYS_timerfd_settime, made.timer, 0, &never, nullptr);
  clear(made.timer);
  clear(made.event);
  take_rings();
  own_root().sleeps.fetch_or(kArmed, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the one in ring()
}

void let_descriptor_expire(int64_t after_ns) {
  const base::LockHolder holder(lock);
  const itimerspec once = {.it_interval = {}, .it_value = {after_ns / 1'000'000'000, after_ns % 1'000'000'000}};
  (void)system_call(SYS_timerfd_settime, made.timer, 0, &once, nullptr);
}

void ring_descriptor_of(int rank) {
  if (rank != own_rank()) {
    send_ring(rank);
    return;
  }
  const base::LockHolder holder(lock);
  const uint64_t one = 1;
  if (made.event >= 0) {
    (void)system_call(SYS_write, made.event, &one, sizeof one);
  }
}

void close_descriptor() {
  const base::LockHolder holder(lock);
  close_all();
}

}  // namespace headroom::rpipe
