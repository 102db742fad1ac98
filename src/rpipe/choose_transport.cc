// See choose_transport.h.
#include "rpipe/choose_transport.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "rpipe/messages.h"
#include "rpipe/ofi.h"
#include "rpipe/peers.h"

namespace headroom::rpipe {

namespace {

constexpr const char* kWish = "RPIPE_BETWEEN";
char why_not[512] = "";
bool went_by_mpi = false;  // pipes of this process have, ever

bool is_asked_for(Wish wish) {
  const std::vector<Card>& all = all_cards();
  return std::any_of(all.begin(), all.end(), [&](const Card& card) { return card.wish == wish; });
}

bool are_on_several_nodes() {
  const std::vector<Card>& all = all_cards();
  return std::any_of(all.begin(), all.end(), [&](const Card& card) { return strcmp(card.node, all.front().node) != 0; });
}

bool have_all_messages_of_mpi() {
  const std::vector<Card>& all = all_cards();
  return std::all_of(all.begin(), all.end(), [](const Card& card) { return card.has_messages != 0; });
}

/// The first rank without libfabric's messages, or whose network is another than rank 0's; -1: all have the same.
int find_rank_without(std::vector<OfiCard>& all) {
  for (size_t rank = 0; rank < all.size(); ++rank) {
    OfiCard& card = all[rank];
    if (card.bytes > 0 && strcmp(card.network, all.front().network) != 0) {
      (void)snprintf(card.why_not, sizeof card.why_not, "its network is %s, that of rank 0 %s (FI_PROVIDER chooses)",
                     card.network, all.front().network);
      return static_cast<int>(rank);
    }
    if (card.bytes == 0) {
      return static_cast<int>(rank);
    }
  }
  return -1;
}

/// Messages by libfabric, if all ranks have them. A negative error number: the ranks cannot be asked.
int join_by_ofi(const rpipe_bootstrap& bootstrap, const rpipe_transport*& transport) {
  const Card& card = all_cards()[static_cast<size_t>(own_rank())];
  OfiCard own = {};
  if (went_by_mpi) {
    (void)snprintf(own.why_not, sizeof own.why_not, "its pipes have gone by MPI's messages before, which stay until MPI ends");
  } else {
    own = open_ofi(card.nonce);
  }
  std::vector<OfiCard> all(static_cast<size_t>(ranks()));
  if (bootstrap.allgather(bootstrap.context, &own, all.data(), sizeof own) != 0) {
    close_ofi();
    return -EPROTO;
  }
  const int without = find_rank_without(all);
  if (without < 0) {
    transport = join_ofi(own_rank(), all);
    return 0;
  }
  close_ofi();
  transport = nullptr;
  (void)snprintf(why_not, sizeof why_not, "no messages by libfabric on rank %d (on %s): %s", without, peer_of(without).host,
                 all[static_cast<size_t>(without)].why_not);
  return 0;
}

}  // namespace

Wish read_wish() {
  const char* const wish = getenv(kWish);
  if (wish == nullptr || wish[0] == 0) {
    return Wish::kNone;
  }
  if (strcmp(wish, "ofi") == 0) {
    return Wish::kOfi;
  }
  if (strcmp(wish, "mpi") == 0) {
    return Wish::kMpi;
  }
  say("%s=%s: it can be mpi or ofi", kWish, wish);
  return Wish::kWrong;
}

int choose_transport(const rpipe_bootstrap& bootstrap, const rpipe_transport*& transport) {
  const bool asks_for_mpi = is_asked_for(Wish::kMpi);
  const bool asks_for_ofi = is_asked_for(Wish::kOfi);
  (void)snprintf(why_not, sizeof why_not, "all ranks are on one node, and messages by libfabric were not asked for (%s=ofi)",
                 kWish);
  int error = 0;
  if (asks_for_mpi && (asks_for_ofi || !have_all_messages_of_mpi())) {
    (void)snprintf(why_not, sizeof why_not,
                   asks_for_ofi ? "%s=mpi and %s=ofi were asked for" : "%s=mpi: pipes did not begin by rpipe_init()", kWish,
                   kWish);
    error = -ENOTSUP;
  } else if (asks_for_ofi || (!have_all_messages_of_mpi() && are_on_several_nodes())) {
    error = join_by_ofi(bootstrap, transport);
    error = error == 0 && asks_for_ofi && transport == nullptr ? -ENOTSUP : error;
  }
  if (error == -ENOTSUP) {
    say("%s", why_not);
  }
  went_by_mpi |= error == 0 && transport != nullptr && transport->backend == RPIPE_MPI;
  return error;
}

void leave_transport() { close_ofi(); }

const char* why_no_transport() { return why_not; }

}  // namespace headroom::rpipe
