// See store_room.h.
#include "pager/store_room.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/log.h"
#include "base/settings.h"
#include "pager/state.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using base::system_call;
using trace::Counter;

constexpr uint64_t kPieceStripes = 64;  // are set aside at once, while there is much room
constexpr uint64_t kSpareBytes = 8 << 20;
constexpr uint64_t kLongestWaitS = 1'000'000'000;
constexpr int64_t kLookAgainNs = 100'000'000;

bool nearly_full = false;  // single stripes from now on
int adopted = 0;           // of the directories that were added to the job

bool is_lack_of_room(int error) { return error == ENOSPC || error == EDQUOT; }

/// For file systems that cannot set room aside: whether there is as much, and some to spare.
int look_for_room(int descriptor, uint64_t bytes) {
  struct statfs known = {};
  if (base::is_error(system_call(SYS_fstatfs, descriptor, &known)) || known.f_blocks == 0) {
    return 0;
  }
  const uint64_t free_blocks = geteuid() == 0 ? known.f_bfree : known.f_bavail;
  return free_blocks * static_cast<uint64_t>(known.f_bsize) < bytes + kSpareBytes ? ENOSPC : 0;
}

int set_room_aside(int descriptor, uint64_t offset, uint64_t bytes) {
  long result = 0;
  do {
    result = system_call(SYS_fallocate, descriptor, FALLOC_FL_KEEP_SIZE, offset, bytes);
  } while (result == -EINTR);
  return result == -EOPNOTSUPP ? look_for_room(descriptor, bytes) : static_cast<int>(-result);
}

/// Sets a whole piece aside, if nothing of it is yet. What there was of it is given back if there is not enough.
bool place_piece(StoreFiles& files, uint64_t first) {
  for (uint64_t stripe = first; stripe < first + kPieceStripes; ++stripe) {
    if (files.placed[stripe] != 0) {
      return false;
    }
  }
  const auto count = static_cast<uint64_t>(files.striped);
  bool fits = true;
  for (uint64_t turn = 0; turn < 2 && (turn == 0 || !fits); ++turn) {  // the second gives back
    for (uint64_t file = 0; file < count; ++file) {
      const uint64_t from = (first + count - 1 - file) / count;
      const uint64_t to = (first + kPieceStripes + count - 1 - file) / count;
      const uint64_t bytes = (to - from) * kStripeBytes;
      if (turn == 0) {
        fits = fits && (bytes == 0 || set_room_aside(files.descriptors[file], from * kStripeBytes, bytes) == 0);
      } else if (bytes > 0) {
        (void)system_call(SYS_fallocate, files.descriptors[file], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                          from * kStripeBytes, bytes);
      }
    }
  }
  for (uint64_t stripe = first; fits && stripe < first + kPieceStripes; ++stripe) {
    files.placed[stripe] = static_cast<uint8_t>(stripe % count + 1);
  }
  return fits;
}

/// Puts a stripe where it belongs, or else where there is room. Returns an errno value.
int place_stripe(StoreFiles& files, uint64_t stripe) {
  const int usual = static_cast<int>(stripe % static_cast<uint64_t>(files.striped));
  int first_error = 0;
  for (int turn = 0; turn < files.count; ++turn) {
    const int file = (usual + turn) % files.count;
    files.placed[stripe] = static_cast<uint8_t>(file + 1);
    const StorePlace place = place_of(files, stripe * kStripeBytes);
    const int error = set_room_aside(place.descriptor, place.offset, kStripeBytes);
    if (error == 0) {
      trace::count(Counter::kStripesElsewhere, turn > 0 ? 1 : 0);
      return 0;
    }
    files.placed[stripe] = 0;
    first_error = turn == 0 ? error : first_error;
  }
  return first_error;
}

/// Opens what was added to the job since it was looked at last.
void adopt_added_directories(StoreFiles& files) {
  node::Ledger& ledger = *state.session->ledger;
  while (adopted < node::kMostAddedDirectories &&
         ledger.added_directories[adopted].ready.load(std::memory_order_acquire) != 0) {
    add_store_file(files, ledger.added_directories[adopted++].path);
  }
}

bool somebody_waits(const node::Ledger& ledger) {
  for (const node::Member& member : ledger.members) {
    if (is_alive(member) && member.waits_for_storage_room.load(std::memory_order_seq_cst) != 0) {
      return true;
    }
  }
  return false;
}

/// Says once on the node that it has begun, or has ended.
void tell(bool begins, int error) {
  node::Ledger& ledger = *state.session->ledger;
  state.session->self->waits_for_storage_room.store(begins ? 1 : 0, std::memory_order_seq_cst);
  if (begins && ledger.told_of_full_storage.exchange(1, std::memory_order_seq_cst) == 0) {
    char host[256] = "this host";
    (void)gethostname(host, sizeof host - 1);
    base::log_warning(
        "the storage in %s is full (%s), so memory has nowhere to go: the run pauses. Free room there, or give it another "
        "directory: `headroom storage add DIRECTORY` on %s. It ends if there is no room within %llu s (--storage-wait)",
        base::settings().storage, strerror(error), host, static_cast<unsigned long long>(base::settings().storage_wait));
  }
  if (!begins && !somebody_waits(ledger) && ledger.told_of_full_storage.exchange(0, std::memory_order_seq_cst) == 1) {
    base::log_warning("there is room for memory on storage again: the run goes on");
  }
}

/// Waits until the stripe can be placed; an errno value if it cannot in time.
int wait_for_room(StoreFiles& files, uint64_t stripe, int error) {
  const uint64_t began = base::monotonic_ns();
  const uint64_t patience_s = base::settings().storage_wait < kLongestWaitS ? base::settings().storage_wait : kLongestWaitS;
  tell(true, error);
  uint64_t now = began;
  while (is_lack_of_room(error) && now - began < patience_s * 1'000'000'000) {
    const timespec pause = {0, kLookAgainNs};
    (void)system_call(SYS_nanosleep, &pause, nullptr);
    if (node::outlived_failure(*state.session)) {
      base::die("another rank of this node ended with an error, see its message; this one cannot go on without it");
    }
    adopt_added_directories(files);
    error = place_stripe(files, stripe);
    now = base::monotonic_ns();
  }
  trace::count(Counter::kStorageFullNs, now - began);
  tell(false, error);
  return error;
}

}  // namespace

void ensure_store_room(uint64_t offset) {
  StoreFiles& files = state.files;
  const uint64_t stripe = offset / kStripeBytes;
  if (files.placed[stripe] != 0) {
    return;
  }
  if (!nearly_full && place_piece(files, stripe / kPieceStripes * kPieceStripes)) {
    return;
  }
  nearly_full = true;
  int error = place_stripe(files, stripe);
  if (is_lack_of_room(error)) {
    adopt_added_directories(files);
    error = place_stripe(files, stripe);
  }
  if (is_lack_of_room(error) && base::settings().storage_wait > 0) {
    error = wait_for_room(files, stripe, error);
  }
  if (error != 0) {
    die_of_transfer(true, kStripeBytes, error);
  }
}

}  // namespace headroom::pager
