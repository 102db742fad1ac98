// The trace: the events of a run and their times, for `headroom report`. Off unless the setting `trace` names a directory.
//
// Any thread records an event into a ring in memory (no lock, no allocation, tens of nanoseconds); the pager thread writes the
// ring to a file of the process's own, and the end of the process writes the rest. An event that finds the ring full is counted
// as lost.
//
// The file: a header of kTraceMagic and the events as they are in memory, read by python/headroom/report/trace.py.
#pragma once

#include <atomic>
#include <cstdint>

namespace headroom::trace {

inline constexpr uint64_t kTraceMagic = 0x3245434152544848;  // "HHTRACE2"

enum class EventKind : uint16_t {
  kBegin = 1,  // values: real time in ns, budget, slots, bytes of a block, a number for the run (job_number())
  kSample,  // state: RunState; label: rank + 1; values: resident, outside the arena, read, written (bytes), faults, waited (ns)
  kRunState,  // state: RunState from now on
  kSite,      // state: number of the site; values: faults from storage, waited (ns), bytes allocated
  kFrame,     // state: number of the site; label: depth; values: number of the module, offset in it
  kModule,    // state: number of the module; label: number of the part of its path; values: up to 48 bytes of it
  kLost,      // values: events that found the ring full
  kArmed,     // memory has become short: a sample's "resident" bytes are resident from now on, allocated before
};

struct Event {
  uint64_t at_ns;  // monotonic
  EventKind kind;
  uint16_t state;
  uint32_t label;
  int64_t values[6];
};
static_assert(sizeof(Event) == 64);

namespace detail {
extern std::atomic<bool> recording;
void record(const Event& event);
}  // namespace detail

/// A number that the processes of a run have in common, and those of another one have not.
int64_t job_number(const char* job);

/// Makes the process's file in `directory`; false with a warning if that cannot be.
bool open_trace(const char* directory);

inline bool is_recording() { return detail::recording.load(std::memory_order_relaxed); }

/// Records an event, if a trace is taken. Thread-safe, safe in signal handlers.
inline void record(const Event& event) {
  if (is_recording()) {
    detail::record(event);
  }
}

/// Writes what was recorded to the file. Thread-safe.
void write_recorded();

/// In a forked child, which is not traced.
void stop_recording();

}  // namespace headroom::trace
