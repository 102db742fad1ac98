// While this process is in a blocking call of the MPI library, node-mates may need it: a synchronous send to a receive that is
// posted here must end (it may be what the others are kept from that same call by), and so must a long message that goes
// through a ring. Its own thread cannot do that, so a thread of Headroom's does, for as long as the call lasts and only when it
// is rung by somebody who has waited a while. Outside such calls it touches nothing.
#include "direct/endpoint.h"
#include "pager/thread.h"
#include "trace/counters.h"

namespace headroom::direct {

void Endpoint::go_away() {
  if (posted_.count() == 0 && streams_in_ == nullptr && streams_out_ == nullptr && !threads_) {
    return;
  }
  if (!has_helper_.exchange(true) && !pager::start_thread(help, this)) {
    has_helper_.store(false);
    return;
  }
  own_root().away.fetch_add(1, std::memory_order_release);
}

void Endpoint::come_back() {
  if (!is_away()) {
    return;
  }
  // With the lock: the helper is not at work, and does not begin unless other threads of this process are away.
  const base::LockHolder lock(lock_);
  own_root().away.fetch_sub(1, std::memory_order_release);
}

void Endpoint::ring_away() {
  for (int index = 0; index < reading_count_ + writing_count_; ++index) {
    const int member = index < reading_count_ ? reading_[index] : writing_[index - reading_count_];
    Root& root = *memory_.root<Root>(member);
    if (member != session_->index && root.away.load(std::memory_order_relaxed) != 0 &&
        root.away_bell.exchange(1, std::memory_order_acq_rel) == 0) {
      base::futex_wake(&root.away_bell, 1, true);
    }
  }
}

void* Endpoint::help(void* endpoint) {
  auto& self = *static_cast<Endpoint*>(endpoint);
  Root& root = self.own_root();
  for (;;) {
    while (root.away_bell.exchange(0, std::memory_order_acq_rel) == 0) {
      base::futex_wait(&root.away_bell, 0, -1, true);
    }
    const base::LockHolder lock(self.lock_);
    if (self.is_away()) {
      trace::count(trace::Counter::kHelpedWhileAway);
      (void)self.progress_locked();
    }
  }
  return nullptr;
}

}  // namespace headroom::direct
