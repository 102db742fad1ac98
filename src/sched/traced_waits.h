// Waits in MPI outside turns, for the trace alone. In turns the scheduler says when the rank is blocked; outside, waits are
// nobody's affair, and a rank that waits would seem to compute.
//
// A rank is blocked while all of its threads that have called MPI wait. A wait shorter than kLongWaitNs is not recorded and
// counts as computing: so at most 40'000 events a second are recorded, 2.5 MB. A wait is known where it yields or looks after
// others anyway, so it costs nothing while no trace is taken, and a message that comes at once never does.
#pragma once

#include <cstdint>

#include "trace/recorder.h"

namespace headroom::sched {

inline constexpr uint64_t kLongWaitNs = 50'000;

/// One wait of one thread's. Of waits inside a wait the outermost counts.
class TracedWait {
 public:
  /// The thread waits, and goes on waiting.
  void goes_on() {
    if (trace::is_recording() && !is_kept_) {
      is_kept_ = begin();
    }
  }
  /// It waits no longer. After it has its slot back, if turns have begun meanwhile.
  void ends() {
    if (is_kept_) {
      is_kept_ = false;
      end();
    }
  }

 private:
  static bool begin();
  static void end();

  bool is_kept_ = false;
};

/// Says that the rank is blocked while it still is: its wait may never end. Called by the pager's thread before each sample.
void look_at_traced_waits();

}  // namespace headroom::sched
