// Tallies are made and given back; see tally.h and endpoint.h.
//
// A tally is a piece of message memory that all ranks of a communicator find by its place. One that its communicator no longer
// needs is used again, for another communicator, but only once each of its ranks has let go of it: one may still read there.
#include "direct/tally.h"

#include "direct/endpoint.h"

namespace headroom::direct {

Tally* Endpoint::make_tally() {
  const Guard guard(*this);
  for (Tally** link = &free_tallies_; *link != nullptr; link = &(*link)->next) {
    Tally* tally = *link;
    // acquire: pairs with the release below; its former users read nothing there any more.
    if (tally->let_go.load(std::memory_order_acquire) == tally->ranks) {
      *link = tally->next;
      tally->let_go.store(0, std::memory_order_relaxed);
      return tally;
    }
  }
  void* piece = memory_.allocate(sizeof(Tally));
  return piece != nullptr ? new (piece) Tally{} : nullptr;
}

void Endpoint::let_go_of(Tally* tally, int ranks) {
  const Guard guard(*this);
  if (ranks > 0) {
    tally->ranks = static_cast<uint32_t>(ranks);
    tally->next = free_tallies_;
    free_tallies_ = tally;
  }
  tally->let_go.fetch_add(1, std::memory_order_release);
}

}  // namespace headroom::direct
