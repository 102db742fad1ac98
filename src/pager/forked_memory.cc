// See forked_memory.h. The kernel tells of each child in /proc/PID/smaps_rollup, whose open file belongs to the child's memory,
// not to its number: when it has ended, or has become another program, there is nothing to read.
#include "pager/forked_memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <utility>

#include "base/line_reader.h"
#include "base/own_descriptors.h"
#include "base/system_calls.h"
#include "pager/pager.h"
#include "pager/transition_lock.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

constexpr int kMostChildren = 64;                     // more that live at the same time are not counted
constexpr int kAtOnce = 4;                            // in one look, since the pager serves nobody meanwhile
constexpr uint64_t kLeastIntervalNs = 1'000'000'000;  // other memory is measured as often
constexpr uint64_t kMostIntervalNs = 60'000'000'000;  // so that a child that grows is seen within a minute
constexpr uint64_t kTimesLonger = 50;                 // than it takes to look

struct Forked {
  int file;
  int64_t bytes;  // when last looked at
};
Forked children[kMostChildren];
std::atomic<int> count{0};
int next = 0;  // to be looked at
uint64_t measured_ns = 0;
uint64_t interval_ns = 0;
std::atomic<int64_t> measured{0};
// Of all these. A thread that forks has signals blocked under it, since a handler may fork, too; the pager never waits for it.
base::FutexLock lock;

/// What the child alone has, in bytes: what it shares with its parent until one of them writes is counted there. -1 if it is
/// gone.
int64_t bytes_of(int file) {
  base::LineReader lines(file);
  int64_t anonymous = -1;
  int64_t own = 0;
  while (const char* line = lines.next()) {
    anonymous = std::max(anonymous, base::bytes_in_field(line, "Anonymous:"));
    own += std::max<int64_t>(base::bytes_in_field(line, "Private_Clean:"), 0);
    own += std::max<int64_t>(base::bytes_in_field(line, "Private_Dirty:"), 0);
  }
  return std::min(anonymous, own);
}

/// Whether the process has executed no program since it was forked (PF_FORKNOEXEC, among the flags in its `stat`).
bool is_as_forked(int process) {
  char path[64];
  char text[512] = {};
  (void)snprintf(path, sizeof path, "/proc/%d/stat", process);
  const long file = base::system_call(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (base::is_error(file)) {
    return false;
  }
  (void)base::system_call(SYS_pread64, file, text, sizeof text - 1, 0);
  (void)base::system_call(SYS_close, file);
  const char* at = strrchr(text, ')');  // the name may have anything in it
  for (int field = 2; at != nullptr && field < 9; ++field) {
    at = strchr(at + 1, ' ');
  }
  constexpr unsigned long kForkNoExec = 0x40;
  return at != nullptr && (strtoul(at, nullptr, 10) & kForkNoExec) != 0;
}

/// Forgets the child at this place; the last one takes it.
void forget(int index) {
  base::close_own(std::exchange(children[index].file, -1));
  const int last = count.load(std::memory_order_relaxed) - 1;
  children[index] = children[last];
  count.store(last, std::memory_order_relaxed);
}

}  // namespace

void note_forked(int process) {
  const uint64_t signals = block_signals();
  char path[64];
  (void)snprintf(path, sizeof path, "/proc/%d/smaps_rollup", process);
  const int file = base::own(base::system_call(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
  const bool counts = file >= 0 && is_as_forked(process);  // else the file is that of another program
  bool is_kept = false;
  if (counts) {
    const base::LockHolder holder(lock);
    for (int index = count.load(std::memory_order_relaxed) - 1; index >= 0 && count.load() == kMostChildren; --index) {
      if (bytes_of(children[index].file) < 0) {
        forget(index);
      }
    }
    const int known = count.load(std::memory_order_relaxed);
    is_kept = known < kMostChildren;
    if (is_kept) {
      children[known] = {file, 0};
      count.store(known + 1, std::memory_order_release);
      measured_ns = 0;  // it is looked at soon
    }
  }
  if (!is_kept) {
    base::close_own(file);
  }
  restore_signals(signals);
}

int64_t measure_forked_children() {
  if (count.load(std::memory_order_acquire) == 0 || !lock.try_lock()) {
    return measured.load(std::memory_order_relaxed);
  }
  const uint64_t begin = base::monotonic_ns();
  if (begin - measured_ns >= interval_ns) {
    const int looks = std::min(kAtOnce, count.load(std::memory_order_relaxed));
    for (int look = 0; look < looks && count.load(std::memory_order_relaxed) > 0; ++look) {
      next = next < count.load(std::memory_order_relaxed) ? next : 0;
      children[next].bytes = bytes_of(children[next].file);
      children[next].bytes < 0 ? forget(next) : void(++next);
    }
    int64_t all = 0;
    for (int index = 0; index < count.load(std::memory_order_relaxed); ++index) {
      all += children[index].bytes;
    }
    measured.store(all, std::memory_order_relaxed);
    trace::count_peak(trace::Counter::kForkedBytesPeak, static_cast<uint64_t>(all));
    measured_ns = base::monotonic_ns();
    interval_ns = std::clamp((measured_ns - begin) * kTimesLonger, kLeastIntervalNs, kMostIntervalNs);
  }
  lock.unlock();
  return measured.load(std::memory_order_relaxed);
}

void forget_forked_in_child() {
  lock.reset();  // another thread may have had it
  measured.store(0, std::memory_order_relaxed);
  for (int index = count.exchange(0, std::memory_order_relaxed); index > 0; --index) {
    if (children[index - 1].file >= 0) {
      base::close_own(children[index - 1].file);
    }
  }
}

}  // namespace headroom::pager
