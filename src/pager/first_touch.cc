// Memory for dense first touches, while memory is enough.
//
// In shared memory, which ours is, the first touch of a small page costs half as much again as in private memory. But we can
// look: a large allocation of which several MiB in a row have memory is being filled. The pager's thread looks a millisecond
// after the allocation, then after two, four, and so on for half a minute. (Nothing becomes short by this: allocated memory
// counts against the budget while memory is enough.)
//
// Where blocks can be pages (arena/whole_blocks.h) the thread sets memory aside ahead of the program, in pages of 256 KiB and
// less, in windows that double while the program goes on. To set a page aside takes microseconds, whatever its size, and the
// program's first touch of it clears and maps all of it: that takes a third of what small pages of private memory take. (Pages
// of 2 MiB would be as quick, but a virtual machine may have given free memory in large pieces back to its host, and getting it
// again was seen to take 4 ms a huge page.) Pages that the program has not come to when this ends are cleared, so that all
// memory that is there counts.
//
// On machines with several memory nodes it is set aside where the program's own first touches have put memory: before each
// window a unit is left to the program, to see where that lies when it has come to the middle of the window. As soon as they
// lie on several nodes (threads that fill an array together, a policy that interleaves), or memory does not come from where it
// should, the program goes on alone.
//
// Elsewhere program and thread touch it together: of a window, which doubles while the program goes on, the thread touches the
// second half meanwhile. (Were it just ahead of the program, they would meet and wait for each other's pages.) Only where all
// memory is equally near: a program chooses where it is by touching it.
#include "pager/first_touch.h"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "base/kernel_abi.h"
#include "pager/pager.h"
#include "pager/requests.h"
#include "pager/state.h"
#include "pager/transition_lock.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using namespace arena;
using base::system_call;

constexpr int kMost = 64;                       // allocations watched at one time: each is looked at in turn
constexpr uint64_t kFirstLookNs = 1'000'000;    // filling 4 MiB takes about so long
constexpr uint64_t kLongestNs = 1'000'000'000;  // so that one that is filled late is still noticed
constexpr uint64_t kGiveUpNs = 30'000'000'000;  // memory not filled by then is hardly going to be, in order
constexpr uint64_t kInARow = 4 << 20;           // filled without a gap: then it is taken for filling in order
constexpr int kPiecesALook = 64;                // of data and holes, so that a look at scattered memory ends

constexpr uint64_t kPiece = 2 << 20;           // touched without looking at anything else: about a millisecond
constexpr uint64_t kFirstWindow = 4 << 20;     // as much as was seen in a row
constexpr uint64_t kLargestWindow = 32 << 20;  // memory touched ahead in vain counts in the budget until it is looked at again

constexpr uint64_t kUnit = 2 * kBlockBytes;  // that is set aside at once
constexpr uint64_t kMostAside = 16 << 20;    // the same for memory that is set aside
constexpr int kSamples = 8;                  // pages whose node is asked for
constexpr uint64_t kSoonNs = 50'000'000;     // so long it is looked more often whether the program has gone on
constexpr uint64_t kSoonEachNs = 1'000'000;  // so often then

struct Watched {
  uint64_t offset = 0;  // in the partition
  uint64_t bytes = 0;   // 0: unused
  uint64_t looked_up_to = 0;
  uint64_t started_ns = 0;  // or last found to go on
  uint64_t next_look_ns = 0;
  uint64_t window = 0;  // bytes; 0: none yet
  uint64_t touched_to = 0;
  uint64_t window_end = 0;
  uint64_t marker = 0;      // a page in the part that is left to the program
  uint64_t aside_from = 0;  // from there to the window's end there may be pages that are set aside; 0: none are
  uint64_t left_to = 0;     // the unit that ends there was left to the program
  int node = -1;            // of memory, where the program has put what it touched, if there are several
  bool is_last = false;     // no window follows
};
Watched watched[kMost];  // under the lock that excludes arming
std::atomic<int> count{0};

uint64_t next_of(int what, uint64_t offset, uint64_t end) {
  const long found = system_call(SYS_lseek, state.partition->descriptor, offset, what);
  return base::is_error(found) || static_cast<uint64_t>(found) > end ? end : static_cast<uint64_t>(found);
}

/// Pages that are set aside and that nobody has touched yet count as holes.
void clear_holes(uint64_t from, uint64_t to) {
  while (from < to) {
    const uint64_t hole = next_of(SEEK_HOLE, from, to);
    from = next_of(SEEK_DATA, hole, to);
    if (hole < from) {
      (void)populate(*state.partition, block_of(hole), block_of(from - 1) + 1 - block_of(hole));
    }
  }
}

/// Ends the watch; pages that are set aside in [given_up_from, given_up_to) are about to be punched.
void stop(Watched& allocation, uint64_t given_up_from, uint64_t given_up_to) {
  const auto within = [&allocation](uint64_t at) {
    return at < allocation.aside_from ? allocation.aside_from : std::min(at, allocation.window_end);
  };
  if (allocation.aside_from != 0) {
    clear_holes(allocation.aside_from, within(given_up_from));
    clear_holes(within(given_up_to), allocation.window_end);
  }
  allocation.bytes = 0;
  count.fetch_sub(1, std::memory_order_relaxed);
}

/// Whether several MiB in a row have memory. Goes on where the last look has ended.
bool look_whether_filled(Watched& allocation) {
  const uint64_t end = allocation.offset + allocation.bytes;
  uint64_t at = allocation.looked_up_to;
  for (int piece = 0; piece < kPiecesALook; ++piece) {
    const uint64_t data = next_of(SEEK_DATA, at, end);
    if (data == end) {
      at = allocation.offset;  // from the beginning again
      break;
    }
    const uint64_t filled_to = next_of(SEEK_HOLE, data, end);
    if (filled_to - data >= kInARow) {
      allocation.looked_up_to = filled_to;
      return true;
    }
    at = filled_to;
  }
  allocation.looked_up_to = at;
  return false;
}

/// Whether the machine has one memory node.
bool all_memory_is_equally_near() {
  char nodes[16] = {};
  const long file = system_call(SYS_openat, AT_FDCWD, "/sys/devices/system/node/has_memory", O_RDONLY | O_CLOEXEC);
  if (base::is_error(file)) {
    return true;  // a kernel that knows of no others
  }
  (void)system_call(SYS_read, file, nodes, sizeof nodes - 1);
  (void)system_call(SYS_close, file);
  return strpbrk(nodes, ",-") == nullptr;
}

bool all_memory_is_near() {
  static const bool one_node = all_memory_is_equally_near();
  return one_node;
}

/// The window from `from` on, twice as long as the one before; false if there is nothing left to touch.
bool begin_window(Watched& allocation, uint64_t from) {
  const uint64_t twice = std::min<uint64_t>(allocation.window * 2, kLargestWindow);
  allocation.window = allocation.window == 0 ? kFirstWindow : twice;
  const uint64_t end = (allocation.offset + allocation.bytes) / kPageBytes * kPageBytes;
  const uint64_t begin = (from + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (begin >= end) {
    return false;
  }
  allocation.window_end = end - begin < allocation.window ? end : begin + allocation.window;
  allocation.touched_to = begin + (allocation.window_end - begin) / 2 / kPageBytes * kPageBytes;
  allocation.marker = begin + (allocation.window_end - begin) / 4 / kPageBytes * kPageBytes;
  return true;
}

/// False if the kernel will not, since the program has changed its rights there, say.
bool touch(uint64_t from, uint64_t to) {
  const bool touched = !base::is_error(system_call(SYS_madvise, state.partition->base + from, to - from, MADV_POPULATE_WRITE));
  trace::count(trace::Counter::kBytesTouchedAhead, touched ? to - from : 0);
  return touched;
}

/// The memory node of the page that this process has at `address`; negative if there is none.
int node_of(uintptr_t address) {
  int node = -1;
  const long asked = system_call(SYS_move_pages, 0, 1, &address, nullptr, &node, 0);
  return base::is_error(asked) ? static_cast<int>(asked) : node;
}

/// The node on which the pages of [from, to) lie, by samples; negative if they lie on several, or it cannot be known
/// (containers may refuse that).
int node_of_all(uint64_t from, uint64_t to) {
  int node = -1;
  for (int sample = 1; sample <= kSamples; ++sample) {
    // (By an odd number of pages each, since they may alternate.)
    const int found = node_of(state.partition->base + to - ((to - from) / kSamples - kPageBytes) * sample);
    if (found < 0 || (node >= 0 && found != node)) {
      return -1;
    }
    node = found;
  }
  return node;
}

/// While it lives, this thread's memory comes from that node, if it is one (not negative); unless the thread has a policy of
/// where its memory has to be (numactl): if that says otherwise, the caller will see it.
class FromNode {
 public:
  explicit FromNode(int node) {
    if (node < 0 || base::is_error(system_call(SYS_get_mempolicy, &policy_, nullptr, 0, nullptr, 0)) ||
        (policy_ != MPOL_DEFAULT && policy_ != MPOL_LOCAL)) {
      return;
    }
    const uint64_t nodes = uint64_t{1} << (node & 63);
    is_set_ = node < 64 && !base::is_error(system_call(SYS_set_mempolicy, MPOL_PREFERRED, &nodes, 64 + 1));
  }
  ~FromNode() {
    if (is_set_) {
      (void)system_call(SYS_set_mempolicy, policy_, nullptr, 0);
    }
  }
  FromNode(const FromNode&) = delete;
  FromNode& operator=(const FromNode&) = delete;

 private:
  int policy_ = MPOL_DEFAULT;
  bool is_set_ = false;
};

/// The last page of a unit, which is small, so that the kernel makes no page of it that is larger than a block. False if it
/// will not, or takes memory from another node than this (if it is not negative).
bool place_last_page(uint64_t unit, int node) {
  const uintptr_t last = state.partition->alias + unit + kUnit - kPageBytes;
  return !base::is_error(system_call(SYS_madvise, last, kPageBytes, MADV_POPULATE_WRITE)) &&
         (node < 0 || node_of(last) == node);
}

/// The rest of it: the first block is one page. False if the kernel will not.
bool set_aside(uint64_t unit) {
  const bool done =
      !base::is_error(system_call(SYS_fallocate, state.partition->descriptor, 0, unit, kBlockBytes)) &&
      !base::is_error(system_call(SYS_fallocate, state.partition->descriptor, 0, unit + kBlockBytes, kBlockBytes));
  trace::count(trace::Counter::kBytesSetAside, done ? kUnit : 0);
  return done;
}

/// Sets the window from `from` on aside, twice as long as the one before, where the pages of [seen_from, seen_to) are, which
/// the program has touched by itself; false if nothing is left, or the program goes on alone from now on.
bool set_window_aside(Watched& allocation, uint64_t from, uint64_t seen_from, uint64_t seen_to, uint64_t now) {
  const uint64_t end = (allocation.offset + allocation.bytes) / kUnit * kUnit;
  const bool one_node = all_memory_is_near();
  const uint64_t begin = (from + kUnit - 1) / kUnit * kUnit + (one_node ? 0 : kUnit);
  if (begin >= end) {
    return false;
  }
  const int node = one_node ? -1 : node_of_all(seen_from, seen_to);
  if (!one_node && (node < 0 || (allocation.node >= 0 && node != allocation.node))) {
    return false;
  }
  allocation.node = node;
  allocation.left_to = begin;
  const uint64_t twice = std::min<uint64_t>(allocation.window * 2, kMostAside);
  allocation.window = allocation.window == 0 ? kFirstWindow : twice;
  allocation.aside_from = allocation.aside_from < allocation.window_end ? allocation.aside_from : begin;
  const uint64_t window_end = end - begin < allocation.window ? end : begin + allocation.window;
  const FromNode policy(node);
  for (allocation.window_end = begin; allocation.window_end < window_end;) {
    const uint64_t unit = allocation.window_end;
    if (!place_last_page(unit, node)) {
      return false;
    }
    allocation.window_end += kUnit;
    if (!set_aside(unit)) {
      return false;
    }
  }
  allocation.marker = begin + (window_end - begin) / 2 / kUnit * kUnit;
  allocation.started_ns = now;
  allocation.next_look_ns = now + kSoonEachNs;
  return true;
}

/// No window follows: the program comes to the rest of this one by itself.
void let_window_be_last(Watched& allocation, uint64_t now) {
  allocation.is_last = true;
  allocation.marker = allocation.window_end - kUnit;
  allocation.started_ns = now;
  allocation.next_look_ns = now + kSoonEachNs;
}

/// Touches from there on, if it may.
bool begin_touching(Watched& allocation, uint64_t from, uint64_t now) {
  allocation.started_ns = now;
  allocation.next_look_ns = now;
  return all_memory_is_near() && begin_window(allocation, from);
}

bool has_memory(uint64_t offset) {
  const long data = system_call(SYS_lseek, state.partition->descriptor, offset, SEEK_DATA);
  return !base::is_error(data) && static_cast<uint64_t>(data) == offset;
}

/// Sets the time of the next look at an allocation that has not gone on since `started_ns`; false if there is none.
bool schedule_next_look(Watched& allocation, uint64_t now) {
  const uint64_t passed = now - allocation.started_ns;
  allocation.next_look_ns = now + std::min(passed, kLongestNs);
  return passed <= kGiveUpNs;
}

/// Touches the next piece of the window, or looks whether the program has followed; false if that has come to its end.
bool go_on_touching(Watched& allocation, uint64_t now) {
  if (allocation.touched_to < allocation.window_end) {
    const uint64_t from = allocation.touched_to;
    const uint64_t left = allocation.window_end - from;
    const uint64_t to = left < kPiece ? allocation.window_end : from + kPiece;
    allocation.touched_to = to;
    allocation.next_look_ns = now;
    return touch(from, to);
  }
  if (has_memory(allocation.marker)) {
    allocation.started_ns = now;
    allocation.next_look_ns = now;
    return begin_window(allocation, allocation.window_end);
  }
  return schedule_next_look(allocation, now);
}

/// The same where the window was set aside. Memory before its middle must have been filled by now.
bool go_on_setting_aside(Watched& allocation, uint64_t now) {
  const uint64_t end = allocation.offset + allocation.bytes;
  const uint64_t filled_to = next_of(SEEK_HOLE, allocation.aside_from, end);
  if (filled_to <= allocation.marker) {
    const bool looks_on = schedule_next_look(allocation, now);
    const uint64_t soon = now + kSoonEachNs;
    const bool is_soon = now - allocation.started_ns < kSoonNs && soon < allocation.next_look_ns;
    allocation.next_look_ns = is_soon || allocation.next_look_ns < soon ? soon : allocation.next_look_ns;
    return looks_on;
  }
  allocation.aside_from = filled_to;
  if (allocation.is_last) {
    return false;
  }
  const uint64_t next = next_of(SEEK_HOLE, allocation.window_end, end);
  // Behind the window there may be memory that another thread has filled. Pages that were set aside are looked at, too: the
  // kernel may take large pages from another node, where its own has none.
  const bool is_another = next > allocation.window_end;
  const uint64_t seen_from = is_another ? next - kUnit : allocation.left_to - kUnit;
  if (set_window_aside(allocation, next, seen_from, is_another ? next : filled_to, now)) {
    return true;
  }
  let_window_be_last(allocation, now);
  return filled_to <= allocation.marker;
}

/// False if there is nothing more to do for the allocation.
bool look_at(Watched& allocation, uint64_t now) {
  if (allocation.aside_from != 0) {
    return go_on_setting_aside(allocation, now);
  }
  if (allocation.window != 0) {
    return go_on_touching(allocation, now);
  }
  if (!look_whether_filled(allocation)) {
    return schedule_next_look(allocation, now);
  }
  if (partition().blocks_are_pages) {
    const uint64_t to = allocation.looked_up_to;
    if (set_window_aside(allocation, to, to - kInARow, to, now)) {
      return true;
    }
    const bool some = allocation.aside_from < allocation.window_end;
    if (some) {
      let_window_be_last(allocation, now);
    }
    return some;
  }
  return begin_touching(allocation, allocation.looked_up_to, now);
}

}  // namespace

void watch_first_touch(uint64_t offset, uint64_t bytes) {
  for (Watched& allocation : watched) {
    if (allocation.bytes == 0) {
      const uint64_t now = base::monotonic_ns();
      allocation = {
          .offset = offset, .bytes = bytes, .looked_up_to = offset, .started_ns = now, .next_look_ns = now + kFirstLookNs};
      count.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
}

void forget_first_touch(uint64_t offset, uint64_t bytes, bool given_up) {
  const uint64_t end = offset + bytes;
  for (Watched& allocation : watched) {
    if (allocation.bytes != 0 && offset < allocation.offset + allocation.bytes && allocation.offset < end) {
      stop(allocation, given_up ? offset : end, end);
    }
  }
}

void end_first_touch() {
  for (Watched& allocation : watched) {
    if (allocation.bytes != 0) {
      stop(allocation, 0, 0);
    }
  }
}

void end_first_touch(uint64_t offset, uint64_t bytes) {
  if (watches_first_touch()) {
    const TransitionHolder lock;
    if (!is_armed()) {
      forget_first_touch(offset, bytes, false);
    }
  }
}

bool watches_first_touch() { return count.load(std::memory_order_relaxed) != 0; }

int look_at_first_touch() {
  uint64_t next = UINT64_MAX;
  const uint64_t now = base::monotonic_ns();
  for (Watched& allocation : watched) {
    if (allocation.bytes == 0) {
      continue;
    }
    if (allocation.next_look_ns <= now && !look_at(allocation, now)) {
      stop(allocation, 0, 0);
      continue;
    }
    next = std::min(allocation.next_look_ns, next);
  }
  return next == UINT64_MAX ? -1 : next <= now ? 0 : static_cast<int>((next - now + 999'999) / 1'000'000);
}

void look_for_first_touch(const void* address, uint64_t bytes) {
  constexpr uint64_t kFrom = 16 << 20;
  const bool is_of_use =
      partition().huge_pages != arena::HugePages::kEverywhere && (all_memory_is_near() || partition().blocks_are_pages);
  if (bytes < kFrom || !is_of_use) {
    return;
  }
  {
    const TransitionHolder lock;
    if (is_armed()) {
      return;
    }
    watch_first_touch(reinterpret_cast<uintptr_t>(address) - partition().base, bytes);
  }
  nudge();
}

}  // namespace headroom::pager
