// See wake_latency.h.
#include "pager/wake_latency.h"

#include <fcntl.h>
#include <string.h>

#include "base/log.h"
#include "base/own_descriptors.h"
#include "base/settings.h"
#include "base/system_calls.h"
#include "pager/state.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

constexpr char kDevice[] = "/dev/cpu_dma_latency";
constexpr uint64_t kHoldNs = kHoldLatencyMs * 1'000'000ULL;
constexpr int32_t kAtOnce = 0;   // us
constexpr int32_t kNoWish = -1;  // PM_QOS_DEFAULT_VALUE

int descriptor = -1;      // of the device; open from the start on, so that a child knows what it inherits
bool holds = false;       // fast wake-ups are asked for
uint64_t counted_ns = 0;  // until when that time has been counted

bool wish(int32_t longest_us) {
  return !base::is_error(base::system_call(SYS_write, descriptor, &longest_us, sizeof longest_us));
}

}  // namespace

void open_wake_latency() {
  if (base::settings().latency != base::LatencyChoice::kLow) {
    return;
  }
  descriptor = base::own(base::system_call(SYS_openat, AT_FDCWD, kDevice, O_WRONLY | O_CLOEXEC));
  if (descriptor < 0) {
    base::die("--latency low: %s: %s", kDevice, strerror(-descriptor));
  }
}

void follow_wake_latency() {
  if (descriptor < 0 || (!holds && state.awake_until_ns == 0)) {
    return;
  }
  static uint64_t awaited_ns = 0;  // the last time that single pages were
  const uint64_t now = base::monotonic_ns();
  awaited_ns = state.awake_until_ns != 0 ? now : awaited_ns;
  if (!holds) {
    holds = wish(kAtOnce);
    counted_ns = now;
    return;
  }
  trace::count(trace::Counter::kLowLatencyNs, now - counted_ns);
  counted_ns = now;
  if (now - awaited_ns > kHoldNs) {
    holds = !wish(kNoWish);
  }
}

bool holds_wake_latency() { return holds; }

void forget_wake_latency_in_child() {
  base::close_own(descriptor);
  descriptor = -1;
}

}  // namespace headroom::pager
