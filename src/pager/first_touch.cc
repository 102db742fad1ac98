// What is touched densely for the first time, while memory is enough.
//
// In shared memory, which ours is, the first touch of a small page costs half as much again as in private memory. But we can
// look: a large allocation of which several MiB in a row have memory is being filled. The pager's thread looks a millisecond
// after the allocation, then after two, four, and so on for half a minute. (Nothing becomes short by what follows: what is
// allocated counts against the budget while memory is enough.)
//
// Where the system leaves huge pages to those who ask (/sys/kernel/mm/transparent_hugepage/enabled is `madvise`), the rest of
// the allocation gets them. Programs that do not ask get small pages there, since huge ones would waste memory and time where
// it is touched here and there; here it is not. They are given in windows, each twice as long as the one before, of which the
// thread touches the last quarter, 16 MiB at most, and looks how much of its own time that takes. For a virtual machine may
// have given free memory back to its host (what is free in large pieces, so that small pages are found among what is not), and
// to get it again was seen to take 4 ms a huge page, where small ones take 1.5 and huge ones 0.2 otherwise. Then, and for some
// seconds in other allocations, too, there are only small ones.
//
// Where huge pages are slow, or our memory cannot have any (no user namespaces), program and thread touch it together: of a
// window, which doubles while the program goes on, the thread touches the second half meanwhile. (Were it just ahead of the
// program, they would meet and wait for each other's pages.) Only where all memory is equally near: a program chooses where it
// is by touching it.
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/kernel_abi.h"
#include "pager/pager.h"
#include "pager/state.h"
#include "pager/transition_lock.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using namespace arena;
using base::system_call;

constexpr int kMost = 64;
constexpr uint64_t kFirstLookNs = 1'000'000;
constexpr uint64_t kLongestNs = 1'000'000'000;
constexpr uint64_t kGiveUpNs = 30'000'000'000;
constexpr uint64_t kInARow = 4 << 20;
constexpr int kPiecesALook = 64;

constexpr uint64_t kFirstGiven = 8 << 20;
constexpr uint64_t kMostGiven = 256 << 20;
constexpr uint64_t kMostTouched = 8;      // huge pages of a window
constexpr uint64_t kQuickNs = 1'000'000;  // of processor time, for a huge page
constexpr uint64_t kSlowForNs = 10'000'000'000;

constexpr uint64_t kPiece = 2 << 20;  // touched without looking at anything else: about a millisecond
constexpr uint64_t kFirstWindow = 4 << 20;
constexpr uint64_t kLargestWindow = 32 << 20;

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
  uint64_t given_from = 0;  // the window's beginning, if it was given huge pages; 0: it is touched in small ones
  uint64_t touched_from = 0;
  uint64_t spent_ns = 0;  // on touching from there on
};
Watched watched[kMost];  // under the lock that excludes arming
std::atomic<int> count{0};
uint64_t huge_pages_slow_until_ns = 0;

void stop(Watched& allocation) {
  allocation.bytes = 0;
  count.fetch_sub(1, std::memory_order_relaxed);
}

/// Whether several MiB in a row have memory. Goes on where the last look has ended.
bool is_filled(Watched& allocation) {
  const int descriptor = state.partition->descriptor;
  const uint64_t end = allocation.offset + allocation.bytes;
  uint64_t at = allocation.looked_up_to;
  for (int piece = 0; piece < kPiecesALook; ++piece) {
    const long data = system_call(SYS_lseek, descriptor, at, SEEK_DATA);
    if (base::is_error(data) || static_cast<uint64_t>(data) >= end) {
      at = allocation.offset;  // from the beginning again
      break;
    }
    const long hole = system_call(SYS_lseek, descriptor, data, SEEK_HOLE);
    const uint64_t filled_to = base::is_error(hole) || static_cast<uint64_t>(hole) > end ? end : static_cast<uint64_t>(hole);
    if (filled_to - static_cast<uint64_t>(data) >= kInARow) {
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

bool touches_ahead() {
  static const bool one_node = all_memory_is_equally_near();
  return one_node;
}

bool may_give() { return state.partition->huge_pages == HugePages::kWhereAsked; }

/// The window from `from` on, twice as long as the one before; false if there is nothing left to touch.
bool begin_window(Watched& allocation, uint64_t from) {
  const uint64_t twice = allocation.window * 2 < kLargestWindow ? allocation.window * 2 : kLargestWindow;
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

/// Gives the window of huge pages from `begin` on, twice as long as the one before; false if nothing is left.
bool give_window(Watched& allocation, uint64_t begin, uint64_t now) {
  const uint64_t end = (allocation.offset + allocation.bytes) / kHugePageBytes;
  if (begin >= end) {
    return false;
  }
  const uint64_t twice = allocation.window * 2 < kMostGiven ? allocation.window * 2 : kMostGiven;
  allocation.window = allocation.window == 0 ? kFirstGiven : twice;
  const uint64_t wanted = allocation.window / kHugePageBytes;
  const uint64_t pages = end - begin < wanted ? end - begin : wanted;
  give_huge_pages(begin, begin + pages);
  trace::count(trace::Counter::kHugeBytesFilled, pages * kHugePageBytes);
  allocation.given_from = begin * kHugePageBytes;
  allocation.window_end = (begin + pages) * kHugePageBytes;
  // Where it is not near to all memory, the thread must touch nothing, and so cannot judge.
  const uint64_t quarter = (pages + 3) / 4;
  const uint64_t touched = !touches_ahead() ? 0 : quarter < kMostTouched ? quarter : kMostTouched;
  allocation.touched_to = allocation.window_end - touched * kHugePageBytes;
  allocation.marker = (begin + pages / 2) * kHugePageBytes;
  allocation.touched_from = allocation.touched_to;
  allocation.spent_ns = 0;
  allocation.started_ns = now;
  allocation.next_look_ns = now;
  return true;
}

/// Touches from there on, if it may.
bool begin_touching(Watched& allocation, uint64_t from, uint64_t now) {
  allocation.window = 0;
  allocation.given_from = 0;
  allocation.started_ns = now;
  allocation.next_look_ns = now;
  return touches_ahead() && begin_window(allocation, from);
}

bool has_memory(uint64_t offset) {
  const long data = system_call(SYS_lseek, state.partition->descriptor, offset, SEEK_DATA);
  return !base::is_error(data) && static_cast<uint64_t>(data) == offset;
}

/// When to look again at what has not gone on since `started_ns`; false if never.
bool look_later(Watched& allocation, uint64_t now) {
  const uint64_t passed = now - allocation.started_ns;
  allocation.next_look_ns = now + (passed < kLongestNs ? passed : kLongestNs);
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
  return look_later(allocation, now);
}

/// The same for a window of huge pages. The next one begins where it has ended, or after where the program is by now.
bool go_on_giving(Watched& allocation, uint64_t now) {
  if (allocation.touched_to < allocation.window_end) {
    const uint64_t begin = base::nanoseconds_of(CLOCK_THREAD_CPUTIME_ID);
    if (!touch(allocation.touched_to, allocation.touched_to + kHugePageBytes)) {
      return false;
    }
    allocation.spent_ns += base::nanoseconds_of(CLOCK_THREAD_CPUTIME_ID) - begin;
    allocation.touched_to += kHugePageBytes;
    const uint64_t touched = (allocation.touched_to - allocation.touched_from) / kHugePageBytes;
    if (allocation.spent_ns > touched * kQuickNs) {
      huge_pages_slow_until_ns = now + kSlowForNs;
      trace::count(trace::Counter::kHugePagesSlow);
      arena::let_have_huge_pages(state.partition->base + allocation.given_from, allocation.window_end - allocation.given_from,
                                 false);
      return begin_touching(allocation, allocation.window_end, now);
    }
    allocation.next_look_ns = now;
    return true;
  }
  if (!has_memory(allocation.marker)) {
    return look_later(allocation, now);
  }
  const long hole = system_call(SYS_lseek, state.partition->descriptor, allocation.window_end, SEEK_HOLE);
  const uint64_t filled_to = base::is_error(hole) ? allocation.window_end : static_cast<uint64_t>(hole);
  return give_window(allocation, filled_to / kHugePageBytes + (filled_to > allocation.window_end ? 1 : 0), now);
}

/// False if there is nothing more to do for the allocation.
bool look_at(Watched& allocation, uint64_t now) {
  if (allocation.window != 0) {
    return allocation.given_from != 0 ? go_on_giving(allocation, now) : go_on_touching(allocation, now);
  }
  if (!is_filled(allocation)) {
    return look_later(allocation, now);
  }
  if (may_give() && now >= huge_pages_slow_until_ns) {
    return give_window(allocation, allocation.looked_up_to / kHugePageBytes + 1, now);  // past the one that it is in
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

void forget_first_touch(uint64_t offset, uint64_t bytes) {
  for (Watched& allocation : watched) {
    if (allocation.bytes != 0 && offset < allocation.offset + allocation.bytes && allocation.offset < offset + bytes) {
      stop(allocation);
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
      stop(allocation);
      continue;
    }
    next = allocation.next_look_ns < next ? allocation.next_look_ns : next;
  }
  return next == UINT64_MAX ? -1 : next <= now ? 0 : static_cast<int>((next - now + 999'999) / 1'000'000);
}

void look_for_first_touch(const void* address, uint64_t bytes) {
  constexpr uint64_t kFrom = 16 << 20;
  const arena::HugePages huge_pages = detail::the_partition.huge_pages;
  const bool is_of_use =
      huge_pages == arena::HugePages::kWhereAsked || (huge_pages == arena::HugePages::kNowhere && touches_ahead());
  if (bytes < kFrom || !is_of_use) {
    return;
  }
  {
    const TransitionHolder lock;
    if (is_armed()) {
      return;
    }
    watch_first_touch(reinterpret_cast<uintptr_t>(address) - detail::the_partition.base, bytes);
  }
  nudge();
}

}  // namespace headroom::pager
