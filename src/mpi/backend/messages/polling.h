// Calls of the library's that are polled: a blocking one whose rank must not stay inside the library, and a program's own look.
#pragma once

#include "mpi/backend/abi.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/messages/ending.h"
#include "mpi/backend/state.h"

namespace headroom::mpi {

/// Whether a blocking call of the library's is to be polled: by how this rank waits, or since node-mates may need it meanwhile.
inline bool polls() { return core->polls() || (direct_on && core->endpoint.is_needed()); }

/// Polls until `poll` says that it is done or failed.
template <typename Poll>
int poll_until_done(Poll poll_library) {
  const auto poll = [&](int* flag) {
    if (direct_on) {
      make_progress();
    }
    return poll_library(flag);
  };
  alignas(16) char wait[64];
  int done = 0;
  int error = poll(&done);
  if (done != 0 || error != MPI_SUCCESS) {
    return error;
  }
  core->wait_begin(wait);
  do {
    core->wait_pause(wait);
    error = poll(&done);
  } while (done == 0 && error == MPI_SUCCESS);
  core->wait_end(wait);
  return error;
}

/// After a call that may find nothing: a program that polls in a loop counts as waiting after a while.
inline int after_poll(int error, bool found) {
  if (core->counts_polls()) {
    core->polled(found || error != MPI_SUCCESS, {});
  }
  return error;
}

/// The result of a look at one request or several.
enum class Look {
  kNothing,  // none is active
  kPending,
  kSeen,  // complete, and it was seen before: by a call that ends nothing
  kDone
};

/// Of a call that sets a flag.
inline Look look_by(int flag) { return flag != 0 ? Look::kDone : Look::kPending; }

/// Polls the library by `look(entry, error)`. The library makes progress for itself alone, and the message that the program
/// looks for may come only when a node-mate has had what it needs of this rank.
template <typename PollOnce>
int poll_library(Entry entry, PollOnce look) {
  struct Polled {
    PollOnce& look;
    int error;
    Look found;
    [[nodiscard]] bool ends() const { return found != Look::kPending || error != MPI_SUCCESS; }
  };
  Polled polled = {look, MPI_SUCCESS, Look::kPending};
  polled.found = look(entry, polled.error);
  const bool ends = polled.ends();
  if (direct_on && !ends) {
    make_progress();
  }
  if (core->counts_polls() && polled.found != Look::kNothing) {
    const auto again = [](void* what) {
      if (direct_on) {
        make_progress();
      }
      const InsideLibrary inside;
      auto& poll = *static_cast<Polled*>(what);
      poll.found = poll.look(1, poll.error);
      return poll.ends();
    };
    core->polled(ends && polled.found != Look::kSeen, {ends ? nullptr : +again, &polled});
  }
  return polled.error;
}

}  // namespace headroom::mpi
