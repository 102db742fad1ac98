// See barriers.h.
#include "mpi/backend/collectives/barriers.h"

#include <atomic>
#include <cstdint>

#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/collectives/collectives.h"
#include "mpi/backend/collectives/exchange.h"
#include "mpi/backend/messages/ending.h"
#include "mpi/backend/messages/waiting.h"
#include "mpi/backend/objects/communicators.h"

namespace headroom::mpi {

void wait_and_decide_on_tally(Exchange& exchange, Communicator& communicator) {
  struct {
    uint64_t offset;  // 0: there is none
    uint64_t counted;
  } offer = {};
  const auto make_offer = [&] {
    communicator.tally =
        core->waiters_may_sleep() && communicator.size <= direct::kMostInTally ? core->endpoint.make_tally() : nullptr;
    communicator.owns_tally = communicator.tally != nullptr;
    if (communicator.owns_tally) {
      offer = {core->endpoint.offset_of_tally(communicator.tally), communicator.tally->arrived.load(std::memory_order_relaxed)};
    }
  };
  wait_along_tree(exchange, communicator, make_offer, {reinterpret_cast<char*>(&offer), sizeof offer, nullptr});
  exchange.wait_for_sends();
  communicator.knows_tally = true;
  communicator.tally = offer.offset != 0 ? core->endpoint.tally_at(offer.offset) : nullptr;
  communicator.counted = offer.counted;
}

bool has_tally(Exchange& exchange, Communicator& communicator) {
  if (!communicator.knows_tally) {
    wait_and_decide_on_tally(exchange, communicator);
  }
  return communicator.tally != nullptr;
}

void wait_at_tally(Communicator& communicator) {
  std::atomic<uint64_t>& arrived = communicator.tally->arrived;
  communicator.counted += static_cast<uint64_t>(communicator.size);
  const uint64_t all = communicator.counted;
  core->count_collective_by_tally();
  if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == all) {
    for (int rank = 0; rank < communicator.size; ++rank) {
      if (rank != communicator.rank) {
        core->endpoint.wake(communicator.members[rank]);
      }
    }
    return;
  }
  wait_direct([&] {
    if (arrived.load(std::memory_order_acquire) >= all) {
      return true;
    }
    make_progress();
    return false;
  });
}

/// Ranks that only send do not wait for those that receive, and would run ahead without end. So every so often all wait for
/// all.
///
/// Soon where one rank receives from all others: while it waits for one of them, messages of the others are taken from their
/// channels and fill its queue, and the caches (MPI_Reduce of 8 B, 4 ranks on 2 cores, 50 000 in a row: 1.04 us without, 0.17
/// so). Later where each rank receives from one other, as in MPI_Bcast: its channel holds them, and a sender that is far ahead
/// does not share lines with its receiver (8 B, 2 ranks: 0.04 us, 0.12 at every 512th call). The one is a multiple of the
/// other, so that calls of both kinds in turn miss none.
int Waits::end_one_way(Communicator& communicator, MPI_Comm comm, Ahead ahead) {
  constexpr uint32_t kMostInQueues = 512;
  constexpr uint32_t kMostInChannels = 8 * kMostInQueues;
  const bool queues = ahead == Ahead::kInQueues && communicator.size > 2;
  if (++communicator.one_way % (queues ? kMostInQueues : kMostInChannels) == 0) {
    exchange_.wait();
    wait_along_tree(exchange_, communicator, [] {});
  }
  return end(comm);
}

void broadcast(Waits& ending, Exchange& exchange, const Communicator& communicator, const direct::Content& content, int root) {
  if (content.bytes > direct::kInlineBytes) {
    broadcast_flat(ending, exchange, communicator, content, root);
    return;
  }
  const TreePlace place = place_in_tree(communicator, root);
  if (!place.is_root()) {
    exchange.receive(place.parent(), content);
    exchange.wait_for_receives();
  }
  for (int below = place.first_below(); below < place.end_below(); ++below) {
    exchange.send(place.in_communicator(below), content, direct::SendKind::kBroadcast);
  }
}

}  // namespace headroom::mpi
