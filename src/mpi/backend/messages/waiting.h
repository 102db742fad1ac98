// Waiting for direct messages.
//
// A waiting rank looks, makes progress and pauses in turn; how it pauses is the core's affair (direct/waiting.h). A sender
// looks for about as long as copying would take, and then has its content copied aside. Before MPI_Finalize everything is
// waited for that others may still need of this process, and the library gets its handles back.
#pragma once

#include <cstdint>

#include "direct/endpoint.h"
#include "direct/patience.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/objects/communicators.h"

namespace headroom::mpi {

/// A program that polls: the library gets progress too, now and then, and so do ranks that are in a blocking call of the
/// library's.
void poll_library_at_times();

/// This thread is in a collective call on a file: it may sleep although it has a processor of its own.
constinit extern thread_local bool waits_for_file;

class DirectWait {
 public:
  DirectWait() {
    waits_for_library = false;
    core->wait_direct_begin(place_, poke_library, waits_for_file);
  }
  ~DirectWait() { core->wait_direct_end(place_); }
  DirectWait(const DirectWait&) = delete;
  DirectWait& operator=(const DirectWait&) = delete;
  void pause() { core->wait_direct_pause(place_); }

 private:
  alignas(16) char place_[64];
};

/// Waits until `done`, which makes progress where it needs some.
template <typename Done>
void wait_direct(Done done) {
  if (done()) {
    return;
  }
  DirectWait wait;
  do {
    wait.pause();
  } while (!done());
}

/// How many looks a sender makes before it copies its content aside.
inline uint64_t patience(uint64_t bytes) { return direct::looks_before_copying_aside(bytes, core->waiters_may_sleep()); }

/// How many of them it makes before it does anything else.
inline uint64_t looks_for_send(uint64_t bytes) { return patience(bytes) / 2; }

/// Waits for a send. A receiver that does not come is not waited for long: about as long as copying aside would take.
void wait_for_send(direct::Sending* sending);

/// Before MPI_Finalize: waits until nothing that was sent needs this process any more, and gives the library its handles back.
void end_direct();

}  // namespace headroom::mpi
