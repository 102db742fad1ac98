// See waiting.h.
#include "mpi/backend/messages/waiting.h"

#include <atomic>
#include <cstdint>

#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/collectives/staged_collectives.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/messages/direct_requests.h"
#include "mpi/backend/messages/ending.h"
#include "mpi/backend/messages/freed_communicators.h"
#include "mpi/backend/messages/matched_messages.h"
#include "mpi/backend/messages/network.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/state.h"

namespace headroom::mpi {

void poll_library_at_times() {
  static thread_local uint32_t polls_made = 0;
  if (++polls_made % 64 == 0) {
    poke_library();
    core->endpoint.look_after_peers();
  }
}

constinit thread_local bool waits_for_file = false;

void wait_for_send(direct::Sending* sending) {
  if (sending == nullptr) {
    return;
  }
  const uint64_t bytes = sending->content.bytes;
  uint64_t rounds = looks_for_send(bytes);
  wait_direct([&] {
    if (core->endpoint.try_to_finish(sending)) {
      return true;
    }
    ++rounds;
    if (rounds >= 60 && rounds >= patience(bytes)) {
      core->endpoint.copy_aside(sending, false);
    }
    make_progress();
    direct::relax();  // the receiver needs the line that is looked at
    return false;
  });
}

void end_direct() {
  if (!direct_on) {
    return;
  }
  wait_direct([] {
    make_progress();
    bool sends = false;
    for (DirectRequest* request = freed_requests; request != nullptr; request = request->next) {
      for (DirectRequest* part = request; part != nullptr; part = part->also) {
        if (part->kind == RequestKind::kSend && part->sending != nullptr) {
          core->endpoint.copy_aside(part->sending, true);
          sends = true;
          (void)try_to_complete(*part);
        }
      }
    }
    return !sends && core->endpoint.is_drained();
  });
  end_network();
  drop_all_leaders();
  free_kept_communicators(true);
  direct_on = false;
  between_on = false;
  const InsideLibrary inside;
  for (uint64_t at = 0; handle_count > 0; ++at) {
    MPI_Request handle = handle_table[at].handle.load(std::memory_order_relaxed);
    if (handle != MPI_Request{}) {
      handle_table[at].handle.store(MPI_Request{}, std::memory_order_relaxed);
      real.Request_free[1](&handle);
      --handle_count;
    }
  }
  end_tokens();
  end_stand_ins();
  real.Comm_free[1](&private_self);
  if (private_world != MPI_COMM_NULL) {
    real.Comm_free[1](&private_world);
  }
}

}  // namespace headroom::mpi
