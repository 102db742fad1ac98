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
bool is_asked_for = false;
char why_not[256] = "rpipe_init() was not by MPI, or MPI has ended";

}  // namespace

int read_wish(bool& asks_for_ofi) {
  const char* const wish = getenv(kWish);
  is_asked_for = wish != nullptr && wish[0] != 0;
  asks_for_ofi = is_asked_for && strcmp(wish, "ofi") == 0;
  if (is_asked_for && !asks_for_ofi && strcmp(wish, "mpi") != 0) {
    say("%s=%s: it can be mpi or ofi", kWish, wish);
    return -EINVAL;
  }
  return 0;
}

int choose_transport(const rpipe_bootstrap& bootstrap, const rpipe_transport*& transport) {
  if (!wants_ofi()) {
    return 0;
  }
  const OfiCard own = open_ofi(own_nonce());
  std::vector<OfiCard> all(static_cast<size_t>(ranks()));
  if (bootstrap.allgather(bootstrap.context, &own, all.data(), sizeof own) != 0) {
    close_ofi();
    return -EPROTO;
  }
  const auto without = std::find_if(all.begin(), all.end(), [](const OfiCard& card) { return card.bytes == 0; });
  if (without == all.end()) {
    transport = join_ofi(own_rank(), all);
    return 0;
  }
  close_ofi();
  const auto rank = static_cast<int>(without - all.begin());
  (void)snprintf(why_not, sizeof why_not, "MPI's messages are not to be had, and libfabric's not on rank %d (on %s): %s", rank,
                 peer_of(rank).host, without->why_not);
  if (is_asked_for) {
    say("%s=ofi: rank %d (on %s): %s", kWish, rank, peer_of(rank).host, without->why_not);
    return -ENOTSUP;
  }
  return 0;
}

const char* why_no_transport() { return why_not; }

}  // namespace headroom::rpipe
