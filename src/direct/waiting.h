// Waiting for a message: how a rank spends the time until somebody of its node has done something.
//
//   Waiting waiting(poke);
//   while (!done()) waiting.pause();     // done() makes progress
//
// A rank with a processor of its own spins. With more ranks than cores it spins shortly, lets others have the processor a few
// times, and then sleeps until it is rung: the pause before the one that sleeps announces it, so that done() looks once more
// after the others know. In turns it gives its slot up before it sleeps. Meanwhile the MPI library gets its progress by
// `poke`, sparsely.
#pragma once

#include <cstdint>

#include "sched/traced_waits.h"

namespace headroom::direct {

class Waiting {
 public:
  /// `poke` gives the library progress, and says whether this rank waits for something of it too.
  explicit Waiting(bool (*poke)()) : poke_(poke) {}
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  void pause();
  /// How often pause() was called: a measure of time while it spins.
  [[nodiscard]] uint32_t rounds() const { return rounds_; }

 private:
  void pause_or_sleep();

  bool (*poke_)();
  uint32_t rounds_ = 0;
  uint32_t bell_ = 0;
  bool also_elsewhere_ = false;  // nobody rings for what comes from there
  bool announced_ = false;
  bool gave_slot_up_ = false;
  bool timer_woke_ = false;  // it slept just now, and nobody has rung
  sched::TracedWait traced_;
};

}  // namespace headroom::direct
