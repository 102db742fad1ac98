// Waiting for a message: how a rank spends the time until another one has done something.
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
  /// `poke` gives the library progress, and says whether this rank waits for something of it too. `for_file`: it waits for a
  /// collective call on a file, which takes long, and whose other ranks and threads need the processors.
  explicit Waiting(bool (*poke)(), bool for_file = false) : poke_(poke), for_file_(for_file) {}
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  void pause();
  /// How often pause() was called: a measure of time while it spins.
  [[nodiscard]] uint32_t rounds() const { return rounds_; }

 private:
  void pause_or_sleep();

  bool (*poke_)();
  bool for_file_;
  uint32_t rounds_ = 0;
  uint32_t bell_ = 0;
  bool also_elsewhere_ = false;  // nobody rings for what comes from there
  bool announced_ = false;
  bool gave_slot_up_ = false;
  bool timer_woke_ = false;  // it slept just now, and nobody has rung
  sched::TracedWait traced_;
};

}  // namespace headroom::direct
