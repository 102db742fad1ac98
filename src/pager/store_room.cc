// See store_room.h.
#include "pager/store_room.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "base/settings.h"
#include "pager/fatal_errors.h"
#include "pager/present_pages.h"
#include "pager/state.h"
#include "pager/store_speed.h"
#include "pager/untouched_pages.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using base::system_call;
using trace::Counter;

constexpr uint64_t kPieceStripes = 64;             // are set aside at once, while there is much room
constexpr uint64_t kSpareBytes = 8 << 20;          // left to others of the file system
constexpr uint64_t kLongestWaitS = 1'000'000'000;  // for ever, and still right in nanoseconds
constexpr int64_t kLookAgainNs = 100'000'000;      // whether there is room again, while a job waits for it

constexpr uint64_t kKnownToLackNs = 10'000'000;    // so long it is not looked again, unless a thread waits
constexpr uint64_t kNotWrittenNs = 200'000'000;    // so long, at least, a file that could not be written is not tried again
constexpr uint64_t kPauseIsOldNs = 1'000'000'000;  // nobody has waited for so long
constexpr int kSilentLooks = 2;                    // another rank may have taken more than it keeps

bool nearly_full = false;  // single stripes from now on
uint32_t adopted = 0;      // a bit for each directory added to the job that is open here
uint64_t lacked_at_ns = 0;

/// Files that a write has found without room although there seemed to be some.
struct Lack {
  uint64_t since_ns;  // 0: it has not
  uint64_t lasts_ns;  // before it is tried again
  uint64_t tried_ns;  // when the first write began after the last one that ended; 0: none has
  int error;
};
Lack lacks[kMostFiles] = {};

Lack& lack_of_file_at(uint64_t offset) {
  const StoreFiles& files = state.files;
  const uint64_t stripe = offset / kStripeBytes;
  const uint8_t placed = files.placed[stripe];
  return lacks[placed != 0 ? placed - uint64_t{1} : stripe % static_cast<uint64_t>(files.striped)];
}

bool lacks_room(uint64_t file) {
  return lacks[file].since_ns != 0 && base::monotonic_ns() - lacks[file].since_ns < lacks[file].lasts_ns;
}

/// The pause that lasts, if one does: until something is written, since there may only seem to be room again.
struct Pause {
  uint64_t since_ns;
  uint64_t last_ns;  // when this rank has waited last
  int looks;
  bool told;
};
Pause pause = {};

/// For file systems that cannot set room aside: whether there is as much, and some to spare.
int look_for_room(int descriptor, uint64_t bytes) {
  struct statfs known = {};
  if (base::is_error(system_call(SYS_fstatfs, descriptor, &known)) || known.f_blocks == 0) {
    return 0;
  }
  const uint64_t free_blocks = geteuid() == 0 ? known.f_bfree : known.f_bavail;
  const auto block_bytes = static_cast<uint64_t>(known.f_frsize != 0 ? known.f_frsize : known.f_bsize);
  return free_blocks * block_bytes < bytes + kSpareBytes ? ENOSPC : 0;
}

int set_room_aside(int descriptor, uint64_t offset, uint64_t bytes) {
  if (!base::file_may_have(offset + bytes)) {
    return EFBIG;  // fallocate would not say so, the write would
  }
  long result = 0;
  do {
    result = system_call(SYS_fallocate, descriptor, FALLOC_FL_KEEP_SIZE, offset, bytes);
  } while (result == -EINTR);
  return result == -EOPNOTSUPP ? look_for_room(descriptor, bytes) : static_cast<int>(-result);
}

void give_room_back(int descriptor, uint64_t offset, uint64_t bytes) {
  (void)system_call(SYS_fallocate, descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
}

/// Sets a whole piece aside, if nothing of it is yet. The part that was had is given back if there is not enough.
bool place_piece(StoreFiles& files, uint64_t first) {
  for (uint64_t stripe = first; stripe < first + kPieceStripes; ++stripe) {
    if (files.placed[stripe] != 0) {
      return false;
    }
  }
  const auto count = static_cast<uint64_t>(files.striped);
  for (uint64_t file = 0; file < count; ++file) {
    if (lacks_room(file)) {
      return false;
    }
  }
  bool fits = true;
  enum {
    kLook,
    kTake,
    kGiveBack
  };  // a rank that takes all that is left, if only to give it back, lets others think it is gone
  for (int turn = kLook; turn <= (fits ? kTake : kGiveBack); ++turn) {
    for (uint64_t file = 0; file < count; ++file) {
      const uint64_t from = (first + count - 1 - file) / count;
      const uint64_t to = (first + kPieceStripes + count - 1 - file) / count;
      const uint64_t bytes = (to - from) * kStripeBytes;
      const int descriptor = files.descriptors[file];
      if (bytes == 0) {
        continue;
      }
      if (turn == kLook && look_for_room(descriptor, bytes) != 0) {
        return false;
      }
      if (turn == kTake) {
        fits = fits && set_room_aside(descriptor, from * kStripeBytes, bytes) == 0;
      } else if (turn == kGiveBack) {
        give_room_back(descriptor, from * kStripeBytes, bytes);
      }
    }
  }
  for (uint64_t stripe = first; fits && stripe < first + kPieceStripes; ++stripe) {
    files.placed[stripe] = static_cast<uint8_t>(stripe % count + 1);
  }
  return fits;
}

/// Puts a stripe where it belongs, or else where there is room, but not in file `except`. Returns an errno value.
int place_stripe(StoreFiles& files, uint64_t stripe, int except = -1) {
  const int usual = static_cast<int>(stripe % static_cast<uint64_t>(files.striped));
  const uint8_t before = files.placed[stripe];
  int first_error = 0;
  for (int turn = 0; turn < files.count; ++turn) {
    const int file = (usual + turn) % files.count;
    int error = lacks[file].error;
    if (file != except && !lacks_room(static_cast<uint64_t>(file))) {
      files.placed[stripe] = static_cast<uint8_t>(file + 1);
      const StorePlace place = place_of(files, stripe * kStripeBytes);
      error = set_room_aside(place.descriptor, place.offset, kStripeBytes);
      if (error == 0) {
        trace::count(Counter::kStripesElsewhere, turn > 0 ? 1 : 0);
        return 0;
      }
      if (is_lack_of_room(error)) {
        give_room_back(place.descriptor, place.offset, kStripeBytes);  // a part may have been had
      }
      files.placed[stripe] = before;
    }
    first_error = first_error == 0 ? error : first_error;
  }
  return first_error;
}

/// Whether storage has content of the block that may be read again, or the disk is at work on it (`moves`).
bool is_stored(uint64_t block, bool& moves) {
  const uint64_t word = word_of(block).load(std::memory_order_acquire);
  const uint64_t now = arena::state_of(word);
  switch (now) {
    case arena::kReading:
    case arena::kWriting:
      moves = true;
      return true;
    case arena::kSinglePages:
      moves = moves || pages_are_moving(block);
      return (word & arena::kHasCopy) != 0;
    case arena::kResident:  // a dirty one, too: if it is divided, only its pages that leave are written (divided_blocks.h)
      return (word & arena::kHasCopy) != 0;
    default:
      return now == arena::kStored;
  }
}

int copy_block(const StorePlace& from, const StorePlace& to) {
  static char* content = nullptr;
  content = content == nullptr ? static_cast<char*>(base::reserve_memory(arena::kBlockBytes)) : content;
  if (content == nullptr) {
    return ENOMEM;
  }
  const auto move_all = [](long number, const StorePlace& place) {
    for (uint64_t done = 0; done < arena::kBlockBytes;) {
      const long result = system_call(number, place.descriptor, content + done, arena::kBlockBytes - done, place.offset + done);
      const uint64_t moved = base::is_error(result) ? 0 : whole_pages(static_cast<uint64_t>(result));
      if (moved == 0 && result != -EINTR) {
        return base::is_error(result) ? static_cast<int>(-result) : EIO;
      }
      done += moved;
    }
    return 0;
  };
  const int error = move_all(SYS_pread64, from);
  return error != 0 ? error : move_all(SYS_pwrite64, to);
}

/// Puts a stripe that can no longer be written where it is on another file, with what is stored of its blocks.
/// (The pager's thread copies these itself: there are four at most, and it happens to full disks only.) Returns an errno
/// value.
int move_stripe(StoreFiles& files, uint64_t stripe) {
  constexpr uint64_t kBlocks = kStripeBytes / arena::kBlockBytes;
  const uint8_t before = files.placed[stripe];
  const int file = before - 1;
  bool moves = false;
  bool stored[kBlocks] = {};
  for (uint64_t each = 0; each < kBlocks; ++each) {
    stored[each] = is_stored(stripe * kBlocks + each, moves);
  }
  if (moves) {
    return lacks[file].error;  // for now
  }
  const StorePlace from = place_of(files, stripe * kStripeBytes);
  int error = place_stripe(files, stripe, file);
  if (error != 0) {
    return error;
  }
  const StorePlace to = place_of(files, stripe * kStripeBytes);
  for (uint64_t each = 0; each < kBlocks && error == 0; ++each) {
    const uint64_t offset = each * arena::kBlockBytes;
    error = stored[each] ? copy_block({from.descriptor, from.offset + offset}, {to.descriptor, to.offset + offset}) : 0;
  }
  if (is_lack_of_room(error)) {
    note_lack_of_store_room(stripe * kStripeBytes, error);
  }
  files.placed[stripe] = error != 0 ? before : files.placed[stripe];
  note_storage_written(stripe * kBlocks, kBlocks);
  const StorePlace& left = error != 0 ? to : from;
  give_room_back(left.descriptor, left.offset, kStripeBytes);
  return error;
}

/// Opens the directories that were added to the job since it was looked at last.
void adopt_added_directories(StoreFiles& files) {
  node::Ledger& ledger = *state.session->ledger;
  for (uint32_t index = 0; index < node::kMostAddedDirectories; ++index) {
    const node::AddedDirectory& added = ledger.added_directories[index];
    if ((adopted & 1U << index) == 0 && added.ready.load(std::memory_order_acquire) != 0) {
      adopted |= 1U << index;
      add_store_file(files, added.path);
      state.session->self->pager.store_direct.store(files.direct ? 1 : 0, std::memory_order_relaxed);
    }
  }
}
static_assert(node::kMostAddedDirectories <= 32);

bool can_be_written(const StoreFiles& files, uint64_t stripe) {
  return files.placed[stripe] != 0 && !lacks_room(files.placed[stripe] - uint64_t{1});
}

/// Puts a stripe somewhere where it can be written, as far as is known. Returns an errno value.
int place(StoreFiles& files, uint64_t stripe) {
  if (can_be_written(files, stripe) || (!nearly_full && place_piece(files, stripe / kPieceStripes * kPieceStripes))) {
    return 0;
  }
  nearly_full = true;
  const auto put = [&] { return files.placed[stripe] != 0 ? move_stripe(files, stripe) : place_stripe(files, stripe); };
  int error = put();
  if (is_lack_of_room(error)) {
    adopt_added_directories(files);
    error = put();
  }
  return error;
}

bool another_waits(const node::Ledger& ledger) {
  for (const node::Member& member : ledger.used_members()) {
    if (&member != state.session->self && is_alive(member) &&
        member.pager.waits_for_storage_room.load(std::memory_order_seq_cst) != 0) {
      return true;
    }
  }
  return false;
}

void say_that_it_pauses(int error) {
  char host[256] = "this host";
  (void)gethostname(host, sizeof host - 1);
  base::log_warning(
      "the storage in %s is full (%s), so memory has nowhere to go: the run pauses. Free room there, or give it another "
      "directory: `headroom storage add DIRECTORY` on %s. It ends if there is no room within %llu s (--storage-wait)",
      base::settings().storage, strerror(error), host, static_cast<unsigned long long>(base::settings().storage_wait));
}

/// Says once on the node that the pause has begun. (A rank that was the last to wait, and died, has not said that it has
/// ended.)
void tell_of_pause(int error) {
  node::Ledger& ledger = *state.session->ledger;
  pause.told = true;
  state.session->self->pager.waits_for_storage_room.store(1, std::memory_order_seq_cst);
  if (ledger.told_of_full_storage.exchange(1, std::memory_order_seq_cst) == 0 || !another_waits(ledger)) {
    say_that_it_pauses(error);
  }
}

/// The last one says that it has ended.
void tell_of_end(bool has_room) {
  node::Ledger& ledger = *state.session->ledger;
  state.session->self->pager.waits_for_storage_room.store(0, std::memory_order_seq_cst);
  if (!has_room || another_waits(ledger) || ledger.told_of_full_storage.exchange(0, std::memory_order_seq_cst) == 0) {
    return;
  }
  base::log_warning("there is room for memory on storage again: the run goes on");
  if (another_waits(ledger) && ledger.told_of_full_storage.exchange(1, std::memory_order_seq_cst) == 0) {
    say_that_it_pauses(ENOSPC);  // it began just now and took it to be said
  }
}

/// The part of the thread's work that others on the node cannot wait for.
void serve_node_for_a_moment() {
  node::Session& session = *state.session;
  pollfd wanted[2] = {{session.watched_descriptor, POLLIN, 0}, {session.listen_descriptor, POLLIN, 0}};
  const timespec moment = {0, kLookAgainNs};
  (void)system_call(SYS_ppoll, wanted, 2, &moment, nullptr, 8);
  if (wanted[0].revents != 0) {
    node::watched_ended(session);
  }
  if (wanted[1].revents != 0) {
    node::serve_newcomer(session);
  }
  if (node::outlived_failure(session)) {
    base::die("another rank of this node ended with an error, see its message; this one cannot go on without it");
  }
}

/// Waits a little for room; false if that has taken too long by now.
bool wait_a_little(int error) {
  const uint64_t patience_s = std::min<uint64_t>(base::settings().storage_wait, kLongestWaitS);
  const uint64_t now = base::monotonic_ns();
  pause.since_ns = pause.since_ns == 0 ? now : pause.since_ns;
  if (pause.looks++ >= kSilentLooks) {
    if (now - pause.since_ns >= patience_s * 1'000'000'000) {
      return false;
    }
    if (!pause.told) {
      tell_of_pause(error);
    }
  }
  serve_node_for_a_moment();
  forget_timed_read();
  pause.last_ns = base::monotonic_ns();
  return true;
}

void end_pause(bool has_room) {
  if (pause.since_ns != 0) {
    trace::count(Counter::kStorageFullNs, base::monotonic_ns() - pause.since_ns);
    if (pause.told) {
      tell_of_end(has_room);
    }
    pause = {};
  }
}

}  // namespace

bool is_lack_of_room(int error) { return error == ENOSPC || error == EDQUOT; }

bool find_store_room(uint64_t offset) {
  StoreFiles& files = state.files;
  const uint64_t stripe = offset / kStripeBytes;
  if (can_be_written(files, stripe)) {
    return true;
  }
  const uint64_t now = base::monotonic_ns();
  if (now - lacked_at_ns < kKnownToLackNs) {
    return false;
  }
  const int error = place(files, stripe);
  if (error != 0 && !is_lack_of_room(error)) {
    die_of_transfer(true, kStripeBytes, error);
  }
  lacked_at_ns = error != 0 ? now : 0;
  return error == 0;
}

void await_store_room(uint64_t offset) {
  StoreFiles& files = state.files;
  const uint64_t stripe = offset / kStripeBytes;
  int error = place(files, stripe);
  while (is_lack_of_room(error) && wait_a_little(error)) {
    error = place(files, stripe);
  }
  if (error != 0) {
    end_pause(false);
    die_of_transfer(true, kStripeBytes, error);
  }
}

void note_write_begun(uint64_t offset) {
  Lack& lack = lack_of_file_at(offset);
  lack.tried_ns = lack.tried_ns == 0 ? base::monotonic_ns() : lack.tried_ns;
}

void note_lack_of_store_room(uint64_t offset, int error) {
  const uint64_t now = base::monotonic_ns();
  Lack& lack = lack_of_file_at(offset);
  const uint64_t known_ns = now - lack.since_ns < lack.lasts_ns ? lack.lasts_ns : kNotWrittenNs;  // others failed with it
  const uint64_t took_ns = lack.tried_ns != 0 ? now - lack.tried_ns : 0;
  const uint64_t all_take_ns = (static_cast<uint64_t>(state.files.count) + 1) * took_ns;
  lack = {now, std::max(all_take_ns, known_ns), 0, error};
  pause.last_ns = now;  // it goes on, however long the write has taken to fail
}

void note_written_to_storage(uint64_t offset) {
  lack_of_file_at(offset).tried_ns = 0;
  end_pause(true);
}

void end_old_pause() {
  if (pause.since_ns != 0 && state.store->in_flight() == 0 && base::monotonic_ns() - pause.last_ns > kPauseIsOldNs) {
    end_pause(true);
  }
}

}  // namespace headroom::pager
