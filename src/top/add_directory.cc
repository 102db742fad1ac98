// Names a further storage directory to a running job; see ledger_file.h. Its ranks open it when they lack room
// (pager/store_room.h).
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "top/ledger_file.h"

namespace headroom::top {
namespace {

using node::Ledger;
using node::Member;

constexpr int kLooks = 50;
constexpr long kBetweenLooksNs = 100'000'000;

int waiting(const Ledger& ledger) {
  int count = 0;
  for (const Member& member : ledger.used_members()) {
    count += is_alive(member) && member.pager.waits_for_storage_room.load(std::memory_order_seq_cst) != 0 ? 1 : 0;
  }
  return count;
}

node::AddedDirectory* take_place(Ledger& ledger) {
  for (node::AddedDirectory& place : ledger.added_directories) {
    uint32_t free = 0;
    if (place.taken.compare_exchange_strong(free, 1, std::memory_order_acq_rel)) {
      return &place;
    }
  }
  return nullptr;
}

}  // namespace

int add_directory(Ledger& ledger, const char* path) {
  if (strlen(path) >= sizeof node::AddedDirectory::path) {
    fprintf(stderr, "headroom-ledger: the name of the directory is too long\n");
    return 1;
  }
  const int waited = waiting(ledger);
  node::AddedDirectory* place = take_place(ledger);
  if (place == nullptr) {
    fprintf(stderr, "headroom-ledger: %d directories were added to this job already; it takes no more\n",
            node::kMostAddedDirectories);
    return 1;
  }
  memcpy(place->path, path, strlen(path) + 1);
  place->ready.store(1, std::memory_order_release);
  if (waited == 0) {
    printf("added; no rank lacks room on storage now, so it is used when one does\n");
    return 0;
  }
  for (int look = 0; look < kLooks && waiting(ledger) > 0; ++look) {
    const timespec pause = {0, kBetweenLooksNs};
    (void)nanosleep(&pause, nullptr);
  }
  if (const int left = waiting(ledger); left > 0) {
    fprintf(stderr, "headroom-ledger: added, but %d ranks still wait for room; see what they say\n", left);
    return 1;
  }
  printf("added; %d ranks that had waited for room go on\n", waited);
  return 0;
}

}  // namespace headroom::top
