// See recorder.h. A bounded queue of many writers and one reader at a time: each place says by a number whose turn it is.
#include "trace/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own_descriptors.h"
#include "base/system_calls.h"

namespace headroom::trace {
namespace {

constexpr uint64_t kPlaces = 4096;
constexpr int kWrittenAtOnce = 64;

struct Place {
  std::atomic<uint64_t> turn;  // 2 * round: free for that round; 2 * round + 1: taken by an event of that round
  Event event;
};

Place places[kPlaces];
std::atomic<uint64_t> next_to_record{0};
std::atomic<uint64_t> lost{0};
uint64_t next_to_write = 0;  // under the lock
int file = -1;
base::FutexLock writing;

uint64_t whole_bytes = 0;  // of the file, that hold the mark and whole events

/// If they cannot be written (the disk is full, say), the trace ends with the last event that could.
void write_or_end(const void* what, uint64_t bytes) {
  for (uint64_t done = 0; done < bytes;) {
    const bool fits = base::file_may_have(whole_bytes + done + 1);  // at least some: else a signal would end the process
    const long written =
        fits ? base::system_call(SYS_write, file, static_cast<const char*>(what) + done, bytes - done) : -EFBIG;
    if (written == -EINTR) {
      continue;
    }
    if (base::is_error(written)) {
      detail::recording.store(false, std::memory_order_relaxed);
      whole_bytes += done / sizeof(Event) * sizeof(Event);
      (void)base::system_call(SYS_ftruncate, file, whole_bytes);
      base::log_warning("the trace ends here: writing it failed: %s", strerror(static_cast<int>(-written)));
      return;
    }
    done += static_cast<uint64_t>(written);
  }
  whole_bytes += bytes;
}

void write_events(const Event* events, int count) { write_or_end(events, static_cast<uint64_t>(count) * sizeof(Event)); }

}  // namespace

namespace detail {

std::atomic<bool> recording{false};

void record(const Event& event) {
  uint64_t number = next_to_record.load(std::memory_order_relaxed);
  for (;;) {
    Place& place = places[number % kPlaces];
    const uint64_t free_turn = 2 * (number / kPlaces);
    const uint64_t turn = place.turn.load(std::memory_order_acquire);
    if (turn < free_turn) {
      lost.fetch_add(1, std::memory_order_relaxed);  // still to be written
      return;
    }
    if (turn == free_turn && next_to_record.compare_exchange_weak(number, number + 1, std::memory_order_relaxed)) {
      place.event = event;
      place.turn.store(free_turn + 1, std::memory_order_release);
      return;
    }
    number = next_to_record.load(std::memory_order_relaxed);
  }
}

}  // namespace detail

int64_t job_number(const char* job) {
  uint64_t number = 0xcbf29ce484222325;  // FNV-1a
  for (; *job != 0; ++job) {
    number = (number ^ static_cast<unsigned char>(*job)) * 0x100000001b3;
  }
  return static_cast<int64_t>(number >> 1);
}

bool open_trace(const char* directory) {
  char host[65] = {};
  (void)gethostname(host, sizeof host - 1);
  char path[4096];
  (void)snprintf(path, sizeof path, "%s/%s-%d.trace", directory, host, static_cast<int>(getpid()));
  const long opened = base::system_call(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_APPEND, 0644);
  if (base::is_error(opened)) {
    base::log_warning("no trace is taken: %s cannot be made: %s", path, strerror(static_cast<int>(-opened)));
    return false;
  }
  file = base::own(opened);
  const uint64_t magic = kTraceMagic;
  detail::recording.store(true, std::memory_order_release);
  write_or_end(&magic, sizeof magic);
  return is_recording();
}

void write_recorded() {
  if (!is_recording()) {
    return;
  }
  const base::LockHolder lock(writing);
  Event events[kWrittenAtOnce];
  int count = 0;
  while (is_recording()) {
    Place& place = places[next_to_write % kPlaces];
    const uint64_t round = next_to_write / kPlaces;
    if (count == kWrittenAtOnce || place.turn.load(std::memory_order_acquire) != 2 * round + 1) {
      if (count == 0) {
        break;
      }
      write_events(events, count);
      count = 0;
      continue;
    }
    events[count++] = place.event;
    place.turn.store(2 * (round + 1), std::memory_order_release);
    ++next_to_write;
  }
  if (const uint64_t missed = lost.exchange(0, std::memory_order_relaxed); missed != 0 && is_recording()) {
    const Event event = {base::monotonic_ns(), EventKind::kLost, 0, 0, {static_cast<int64_t>(missed)}};
    write_events(&event, 1);
  }
}

void stop_recording() { detail::recording.store(false, std::memory_order_relaxed); }

}  // namespace headroom::trace
