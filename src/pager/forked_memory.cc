// See forked_memory.h. The kernel tells of each child in /proc/PID/smaps_rollup, whose open file belongs to the child's memory,
// not to its number: when it has ended, or has become another program, there is nothing to read.
#include "pager/forked_memory.h"

#include <fcntl.h>
#include <stdio.h>

#include <algorithm>

#include "base/own_descriptors.h"
#include "base/system_calls.h"
#include "pager/line_reader.h"
#include "pager/pager.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

constexpr int kMostChildren = 64;  // the later ones are not counted
constexpr uint64_t kLeastIntervalNs = 1'000'000'000;
constexpr uint64_t kTimesLonger = 50;  // than it takes to look

int files[kMostChildren];
std::atomic<int> count{0};
int64_t measured = 0;
uint64_t measured_ns = 0;
uint64_t interval_ns = 0;
base::FutexLock lock;  // of all these

/// What the child has for itself, in bytes, pages that it shares with others in parts; -1 if it is gone.
int64_t bytes_of(int file) {
  LineReader lines(file);
  int64_t bytes = -1;
  while (const char* line = lines.next()) {
    const int64_t in_parts = bytes_in_field(line, "Pss_Anon:");  // from Linux 5.4 on, before the other
    if (in_parts >= 0) {
      return in_parts;
    }
    bytes = std::max(bytes, bytes_in_field(line, "Anonymous:"));
  }
  return bytes;
}

}  // namespace

void note_forked(int process) {
  char path[64];
  (void)snprintf(path, sizeof path, "/proc/%d/smaps_rollup", process);
  const base::LockHolder holder(lock);
  const int known = count.load(std::memory_order_relaxed);
  if (known == kMostChildren) {
    return;
  }
  const int file = base::own(base::system_call(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
  if (file >= 0) {
    files[known] = file;
    count.store(known + 1, std::memory_order_release);
  }
}

int64_t measure_forked_children() {
  if (count.load(std::memory_order_acquire) == 0) {
    return 0;
  }
  const base::LockHolder holder(lock);
  const uint64_t begin = base::monotonic_ns();
  if (begin - measured_ns < interval_ns) {
    return measured;
  }
  measured = 0;
  int kept = 0;
  const int known = count.load(std::memory_order_relaxed);
  for (int index = 0; index < known; ++index) {
    const int64_t bytes = bytes_of(files[index]);
    if (bytes < 0) {
      base::close_own(files[index]);
      continue;
    }
    measured += bytes;
    files[kept++] = files[index];
  }
  count.store(kept, std::memory_order_relaxed);
  trace::count_peak(trace::Counter::kForkedBytesPeak, static_cast<uint64_t>(measured));
  measured_ns = base::monotonic_ns();
  interval_ns = std::max((measured_ns - begin) * kTimesLonger, kLeastIntervalNs);
  return measured;
}

void forget_forked_in_child() {
  lock.reset();  // another thread may have had it
  for (int index = count.exchange(0, std::memory_order_relaxed); index > 0; --index) {
    base::close_own(files[index - 1]);
  }
}

}  // namespace headroom::pager
