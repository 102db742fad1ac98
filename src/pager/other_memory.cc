// The memory that this process keeps resident besides the arena: small allocations, stacks, static data that stayed, the MPI
// library's own buffers and its share of the segments that ranks share. The budget is for everything a rank keeps resident, so
// this is reserved like blocks are: at each large allocation while memory is enough, and every second.
//
// The exact measure is from /proc/self/smaps: private pages of all mappings but ours, and the proportional share of shared
// memory, but for copies of messages, which direct/ has reserved when it made them (MemberMemory::message_bytes): they count
// once. Page tables come from /proc/self/status: 2 MiB for each GiB that was ever mapped, of peers' memory, too. For smaps the
// kernel looks at each page of ours, too: 20 ms for 512 MiB that are resident, while nobody's faults are served. So it is read
// so seldom that this is a small part of the time, but at least each minute, and rather while the rank waits; in between, the
// growth of anonymous memory since then is from /proc/self/statm. At most half of a process's equal share of the budget is
// counted, so that tiny budgets still leave room for blocks; memory that a process has beyond that is noted
// (Ledger::beyond_bytes), warned of, and part of the peak. If all the memory that the node has then exceeds the budget, memory
// is short, whichever rank has allocated it. Forked children's memory is their parent's here (forked_memory.h).
//
// While memory is enough smaps is read only if memory that processes share, and that is not ours, has grown: statm tells the
// rest.
#include "pager/other_memory.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/kept_open.h"
#include "base/line_reader.h"
#include "base/log.h"
#include "base/process_status.h"
#include "pager/forked_memory.h"
#include "pager/pager.h"
#include "pager/pins.h"
#include "pager/read_buffers.h"
#include "pager/state.h"
#include "pager/transition_lock.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using base::system_call;

bool begins_mapping(const char* line) { return (*line >= '0' && *line <= '9') || (*line >= 'a' && *line <= 'f'); }

/// The bytes of this process's part of message memory that no rank has reserved, by the share of the unreserved bytes in all
/// that the ranks have in use there together. (A copy is reserved by one of two processes, and lies in the page tables of both:
/// neither can tell alone.)
int64_t not_reserved(int64_t message_bytes) {
  struct stat file = {};
  if (base::is_error(system_call(SYS_fstat, state.session->messages_descriptor, &file)) || file.st_blocks == 0) {
    return message_bytes;
  }
  const auto in_use = static_cast<int64_t>(file.st_blocks) * 512;
  int64_t left = in_use;
  for (const node::Member& member : state.session->ledger->used_members()) {
    left -= is_alive(member) ? member.memory.message_bytes.load(std::memory_order_relaxed) : 0;
  }
  return left > 0 ? static_cast<int64_t>(static_cast<double>(message_bytes) * static_cast<double>(left) /
                                         static_cast<double>(in_use))
                  : 0;
}

/// While memory is enough: how much of the memory that processes share and this one has mapped may be others' or the library's.
/// (A page of ours is mapped once then, at most.)
int64_t shared_besides_ours() {
  struct stat file = {};
  const bool is_known = !base::is_error(system_call(SYS_fstat, state.partition->descriptor, &file));
  return base::size_in_status("RssShmem:") - (is_known ? static_cast<int64_t>(file.st_blocks) * 512 : 0);
}

int64_t measure() {
  static base::KeptOpen file("/proc/self/smaps");
  base::LineReader lines(file.descriptor());
  int64_t total = 0;
  int64_t message_bytes = 0;
  bool ours = false;
  bool messages = false;
  bool shared = false;
  while (const char* line = lines.next()) {
    if (begins_mapping(line)) {
      messages = strstr(line, "/memfd:headroom-messages") != nullptr;
      // Pipes' heaps (src/rpipe) are reserved as they grow.
      ours = (strstr(line, "/memfd:headroom-") != nullptr && !messages) || strstr(line, "/memfd:rpipe") != nullptr;
      shared = strstr(line, " /dev/shm/") != nullptr || strstr(line, " /SYSV") != nullptr ||
               strstr(line, " /memfd:") != nullptr ||
               strstr(line, " /dev/zero (deleted)") != nullptr;  // anonymous memory that is shared
      continue;
    }
    const int64_t counted = ours ? -1 : base::bytes_in_field(line, shared ? "Pss:" : "Anonymous:");
    (messages ? message_bytes : total) += std::max<int64_t>(counted, 0);
  }
  return total == 0 ? 0 : total + not_reserved(message_bytes) + base::size_in_status("VmPTE:");
}

/// The memory that statm calls resident, less the memory that it calls shared: anonymous memory. Two orders of magnitude
/// cheaper than smaps, but blind to shared memory, and before Linux 6.16 off by some pages for each core.
int64_t measure_roughly() {
  static base::KeptOpen file("/proc/self/statm");
  char text[128] = {};
  (void)base::system_call(SYS_pread64, file.descriptor(), text, sizeof text - 1, 0);
  int64_t numbers[3] = {};
  const char* at = text;
  for (int64_t& number : numbers) {
    for (; *at >= '0' && *at <= '9'; ++at) {
      number = number * 10 + (*at - '0');
    }
    at += *at != 0 ? 1 : 0;
  }
  return (numbers[1] - numbers[2]) * static_cast<int64_t>(arena::kPageBytes);
}

constexpr uint64_t kLeastIntervalNs = 1'000'000'000;  // as often as the rough measure is looked at
constexpr uint64_t kMostIntervalNs = 60'000'000'000;  // however long smaps takes in a process of many mappings
constexpr uint64_t kTimesLonger = 200;                // than it takes

/// measure(), or its last result and the growth since then.
int64_t measure_if_due() {
  static int64_t measured = 0;
  static int64_t roughly_then = 0;
  static uint64_t measured_ns = 0;
  static uint64_t interval_ns = 0;
  static int64_t shared_then = 0;
  static bool was_armed = false;
  constexpr int64_t kWorthLooking = 8 << 20;
  const uint64_t begin = base::monotonic_ns();
  const uint64_t wanted_ns = state.idle.load(std::memory_order_relaxed) ? interval_ns / 2 : interval_ns;
  const int64_t roughly = measure_roughly();
  const bool arms_now = state.armed && !was_armed;
  const bool may_look = measured_ns == 0 || begin - measured_ns > wanted_ns;
  if (arms_now || (may_look && (state.armed || shared_besides_ours() - shared_then > kWorthLooking))) {
    was_armed = state.armed;
    shared_then = state.armed ? 0 : shared_besides_ours();
    const int64_t exactly = measure();
    measured = exactly > 0 ? exactly : roughly;  // 0: smaps cannot be read
    roughly_then = roughly;
    measured_ns = base::monotonic_ns();
    interval_ns = (measured_ns - begin) * kTimesLonger;
    interval_ns = std::max(interval_ns, kLeastIntervalNs);
    interval_ns = std::min(interval_ns, kMostIntervalNs);
  }
  const int64_t now = measured + roughly - roughly_then;
  return std::max<int64_t>(now, 0) + measure_forked_children();
}

int64_t most_that_counts() {
  const node::Ledger& ledger = *state.session->ledger;
  const int64_t alive = ledger.alive.load(std::memory_order_relaxed);
  return ledger.budget / (2 * (alive > 0 ? alive : 1));
}

void count_as_other(int64_t wanted) {
  // Where so much is not free, evicting makes up for it (pump()).
  const int64_t more = wanted - state.other_bytes;
  if (more > 0) {
    node::take(*state.session->ledger, *state.session->self, more);
  } else {
    node::release(*state.session->ledger, *state.session->self, -more);
  }
  state.session->self->memory.other_bytes.store(wanted, std::memory_order_relaxed);
  state.other_bytes = wanted;
}

}  // namespace

void count_other_memory_roughly() {
  const int64_t most = most_that_counts();
  const int64_t measured = measure_roughly();
  count_as_other(std::min(measured, most));
  trace::count_peak(trace::Counter::kOtherBytesPeak, measured > 0 ? static_cast<uint64_t>(measured) : 0);
}

void count_more_other_memory(int64_t bytes) { count_as_other(state.other_bytes + bytes); }

namespace {

std::atomic<void (*)()> when_crowded{nullptr};

void warn_once(int64_t measured, int64_t most) {
  node::Ledger& ledger = *state.session->ledger;
  if (ledger.told_of_other_memory.exchange(1, std::memory_order_relaxed) != 0) {
    return;
  }
  const int64_t alive = ledger.alive.load(std::memory_order_relaxed);
  const int64_t for_all = 2 * measured * alive;  // half of a share is for it
  const bool small_move = trace::counted(trace::Counter::kSmallObjectBytes) > 0;
  char children[64] = "";
  if (const int64_t theirs = measure_forked_children(); theirs > 0) {
    (void)snprintf(children, sizeof children, ", %.1f MiB in forked children", static_cast<double>(theirs) / (1 << 20));
  }
  base::log_warning(
      "%.1f MiB of this process cannot be moved to storage (the MPI library, stacks, %s%s); half of its share of --memory is "
      "set "
      "aside for that, %.1f MiB, so the node may use more than its budget: %.1f MiB are resident, of %.1f. --memory %lldM or "
      "more would do for all processes%s",
      static_cast<double>(measured) / (1 << 20),
      small_move ? "what was allocated before the first large allocation" : "small allocations", children,
      static_cast<double>(most) / (1 << 20), static_cast<double>(node::resident_bytes(ledger)) / (1 << 20),
      static_cast<double>(ledger.budget) / (1 << 20), (static_cast<long long>(for_all) >> 20) + 1,
      small_move                    ? ""
      : base::settings().large == 0 ? "; allocations from 64 KiB on can be moved from now on (--large 64K: from the start)"
                                    : "; --large 64K lets what is allocated in pieces of that size move");
}

/// Counts the measured bytes, and warns if they are too many.
void note_measured(int64_t measured) {
  node::Ledger& ledger = *state.session->ledger;
  const int64_t most = most_that_counts();
  count_as_other(std::min(measured, most));
  node::note_beyond(ledger, *state.session->self, measured > most ? measured - most : 0);
  trace::count_peak(trace::Counter::kOtherBytesPeak, static_cast<uint64_t>(measured));
  state.other_measured_ns = base::monotonic_ns();
  if (measured <= most) {
    return;
  }
  if (auto* const function = when_crowded.load(std::memory_order_acquire)) {
    function();
  }
  // While memory is enough, memory that has been reserved for blocks may not be resident: a process that arms finds that out,
  // and looks again.
  const bool exceeds = node::resident_bytes(ledger) > ledger.budget;
  if (state.armed || (exceeds && bytes_of_blocks(*state.session->self) == 0)) {
    warn_once(measured, most);
  }
}

bool has_blocks_anywhere(const node::Ledger& ledger) {
  for (const node::Member& member : ledger.used_members()) {
    if (is_alive(member) && bytes_of_blocks(member) > 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool own_memory_exceeds(int64_t bytes) { return measure_roughly() > bytes; }

void call_when_crowded(void (*function)()) { when_crowded.store(function, std::memory_order_release); }

void reserve_other_memory() {
  look_at_pins();
  if (state.idle.load(std::memory_order_relaxed)) {
    empty_read_buffers();
  }
  note_measured(measure_if_due());
}

bool look_at_other_memory() {
  note_touched();
  look_at_pins();
  const int64_t measured = measure_if_due();  // without the lock: it may take long
  const base::LockHolder lock(transition_lock);
  if (state.armed) {
    return false;
  }
  note_measured(measured);
  const node::Ledger& ledger = *state.session->ledger;
  return node::resident_bytes(ledger) > ledger.budget && has_blocks_anywhere(ledger);
}

void note_other_memory() {
  if (is_running() && !is_forked_child()) {
    const int64_t measured = measure_roughly();
    const int64_t most = most_that_counts();
    trace::count_peak(trace::Counter::kOtherBytesPeak, measured > 0 ? static_cast<uint64_t>(measured) : 0);
    if (!is_armed()) {
      node::note_beyond(*state.session->ledger, *state.session->self, measured > most ? measured - most : 0);
    }
  }
}

}  // namespace headroom::pager
