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
constexpr uint64_t kManyPages = 8;          // in kWithinNs: fewer gain less than polling costs
constexpr uint64_t kWithinNs = 10'000'000;  // a hundred pages' time
constexpr int32_t kAtOnce = 0;              // us
constexpr int32_t kNoWish = -1;             // PM_QOS_DEFAULT_VALUE

int descriptor = -1;  // of the device; open from the start on, so that a child knows what it inherits
bool holds = false;   // fast wake-ups are asked for
struct {
  uint64_t pages;     // that had come alone then
  uint64_t since_ns;  // and since when this is looked at
} seen = {};
uint64_t last_page_ns = 0;
uint64_t counted_ns = 0;  // until when the time has been counted

void wish(int32_t longest_us) {
  if (!base::is_error(base::system_call(SYS_write, descriptor, &longest_us, sizeof longest_us))) {
    holds = longest_us == kAtOnce;
  }
}

/// Whether so many pages have come lately that the wish is worth it, or goes on to be.
bool pages_are_awaited(uint64_t now) {
  const uint64_t pages = trace::counted(trace::Counter::kSinglePagesRead);
  const bool many = pages - seen.pages >= (holds ? 1 : kManyPages);
  if (many || now - seen.since_ns > kWithinNs) {
    seen = {pages, now};
  }
  last_page_ns = many ? now : last_page_ns;
  return many || (holds && now - last_page_ns <= kHoldNs);
}

}  // namespace

void open_wake_latency() {
  if (base::settings().latency != base::LatencyChoice::kLow) {
    return;
  }
  descriptor = base::own(base::system_call(SYS_openat, AT_FDCWD, kDevice, O_WRONLY | O_CLOEXEC));
  if (descriptor < 0) {  // rights, or descriptors, were lost since `headroom run` looked
    base::log_warning("--latency low: %s: %s; processors sleep as the system has it", kDevice, strerror(-descriptor));
  }
}

void follow_wake_latency() {
  if (descriptor < 0 || (!holds && state.awake_until_ns == 0)) {
    return;
  }
  const uint64_t now = base::monotonic_ns();
  trace::count(trace::Counter::kLowLatencyNs, holds ? now - counted_ns : 0);
  counted_ns = now;
  const bool wanted = pages_are_awaited(now);
  if (wanted != holds) {
    wish(wanted ? kAtOnce : kNoWish);
  }
}

void end_wake_latency() {
  if (holds) {
    wish(kNoWish);
  }
}

bool holds_wake_latency() { return holds; }

void forget_wake_latency_in_child() {
  base::close_own(descriptor);
  descriptor = -1;
  holds = false;
}

}  // namespace headroom::pager
