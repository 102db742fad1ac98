// The memory that the kernel keeps for network cards (VmPin in /proc/self/status), beyond the MPI library's own buffers. While
// memory may move, libraries are told to copy (mpi/transports.cc), so it should be the memory that windows hold and, now and
// then, a message that is just being received. Where it grows beyond that while memory is short, some code pins memory that
// moves, and the pager warns.
#include "pager/pins.h"

#include "base/log.h"
#include "base/process_status.h"
#include "pager/pager.h"
#include "pager/state.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

std::atomic<bool> watched{false};
std::atomic<bool> expected{false};
constexpr int64_t kNotYet = -1;  // while MPI begins
std::atomic<int64_t> library_bytes{kNotYet};

int64_t measure_pins() { return base::size_in_status("VmPin:"); }

}  // namespace

void watch_pins(bool now_watched) { watched.store(now_watched, std::memory_order_relaxed); }
void expect_registrations(bool now_expected) { expected.store(now_expected, std::memory_order_relaxed); }
bool registrations_are_expected() { return expected.load(std::memory_order_relaxed); }

void note_pins_of_library() {
  if (watched.load(std::memory_order_relaxed)) {
    library_bytes.store(measure_pins(), std::memory_order_relaxed);
  }
}

void look_at_pins() {
  const int64_t own = library_bytes.load(std::memory_order_relaxed);
  if (!watched.load(std::memory_order_relaxed) || own == kNotYet) {
    return;
  }
  constexpr int64_t kOfMessages = 16 << 20;  // of those that are just being received
  constexpr int kLooks = 3;                  // in a row
  static int64_t before = 0;
  static int grown = 0;
  const int64_t pinned = measure_pins() - own;
  trace::count_peak(trace::Counter::kPinnedBytesPeak, pinned > 0 ? static_cast<uint64_t>(pinned) : 0);
  const bool is_more = pinned > static_cast<int64_t>(pinned_bytes_now()) + kOfMessages && pinned > before;
  grown = is_more ? grown + 1 : 0;
  before = pinned;
  if (state.armed && grown >= kLooks && state.session->ledger->told_of_pins.exchange(1, std::memory_order_relaxed) == 0) {
    base::log_warning(
        "the kernel keeps %.1f MiB of this process in memory for a network card, %s; what it keeps cannot leave, and may be "
        "wrong once it moves: unset what chooses transports (%s)",
        static_cast<double>(pinned) / (1 << 20),
        registrations_are_expected() ? "though messages are meant to be copied" : "as HEADROOM_TRANSPORTS allows",
        registrations_are_expected() ? "UCX_*, FI_*, OMPI_MCA_*" : "HEADROOM_TRANSPORTS");
  }
}

}  // namespace headroom::pager
