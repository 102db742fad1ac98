// See thread_core.h.
#include "pager/thread_core.h"

#include <sched.h>

#include "base/system_calls.h"
#include "node/cores.h"
#include "pager/random_access.h"
#include "pager/state.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

constexpr int kReadsToJudge = 256;  // for so long that processor time, which is known by ticks of 4 ms, says something
constexpr uint64_t kLongestNs = 256'000'000;  // that they may take
constexpr uint64_t kToPartNs = 5'000'000;     // without any

pid_t launcher = 0;  // the process whose cores the thread may use, or 0
cpu_set_t beside;    // the cores that it may use
bool has_cores_beside = false;

/// Of single pages, all for one thread.
struct {
  int32_t thread;
  int count;
  uint64_t began_ns;
  uint64_t computed_ns;  // by the program until then
} reads = {};
uint64_t last_read_ns = 0;
bool reader_is_alone = false;
bool was_judged = false;  // lately
bool shares_core = false;
cpu_set_t before;  // it shared a core

bool run_on(const cpu_set_t& cores) {
  return !base::is_error(base::system_call(SYS_sched_setaffinity, 0, sizeof cores, &cores));
}

bool ask_cores(pid_t thread, cpu_set_t* cores) {
  CPU_ZERO(cores);
  return !base::is_error(base::system_call(SYS_sched_getaffinity, thread, sizeof *cores, cores));
}

/// If that is the only one on which the reader can be woken.
bool join_core_of_reader() {
  cpu_set_t cores;
  if (!ask_cores(reads.thread, &cores) || CPU_COUNT(&cores) != 1) {
    return false;
  }
  cpu_set_t common;
  CPU_AND(&common, &cores, &beside);
  return CPU_COUNT(&common) == 1 && (shares_core || ask_cores(0, &before)) && run_on(cores);
}

/// Goes back to the cores it had before; where it no longer may, it stays for good.
void part_from_reader() {
  shares_core = !run_on(before);
  if (shares_core) {
    launcher = 0;
    has_cores_beside = false;
  }
}

/// Ranks that have come since may have some of the cores.
void look_for_cores_beside() {
  static uint32_t known = 0;
  static cpu_set_t own;  // the program's
  const node::Ledger& ledger = *state.session->ledger;
  const uint32_t now = ledger.cores_in_mask.load(std::memory_order_acquire);
  if (launcher == 0 || now == known) {
    return;
  }
  if (known == 0) {
    if (!ask_cores(0, &own)) {
      launcher = 0;  // more cores than a set has room for
      return;
    }
  }
  known = now;
  beside = node::cores_of_helper(ledger, own, launcher);
  has_cores_beside = !CPU_EQUAL(&beside, &own);
  trace::count(trace::Counter::kPagerRunsBeside, has_cores_beside ? 1 : 0);
  (void)run_on(beside);
  shares_core = false;
}

}  // namespace

void find_cores_to_use() { launcher = node::find_launcher(); }

void follow_cores() {
  look_for_cores_beside();
  if (!has_cores_beside || (!reader_is_alone && !shares_core)) {
    return;
  }
  reader_is_alone = reader_is_alone && base::monotonic_ns() - last_read_ns < kToPartNs;
  if (reader_is_alone && was_judged) {  // it may have been bound to another core meanwhile
    was_judged = false;
    reader_is_alone = join_core_of_reader();  // if not, it is asked again after some reads
    trace::count(trace::Counter::kPagerJoinsReader, reader_is_alone && !shares_core ? 1 : 0);
    shares_core = shares_core || reader_is_alone;
  }
  if (!reader_is_alone && shares_core) {
    part_from_reader();
  }
}

void note_page_reader(int32_t thread) {
  last_read_ns = base::monotonic_ns();
  const bool is_same = thread == reads.thread;
  if (is_same && ++reads.count < kReadsToJudge) {
    return;
  }
  const uint64_t passed = last_read_ns - reads.began_ns;
  const uint64_t computed = state.random_access.computed_ns();
  // A thread that only waits for pages computes for a fifth of the time.
  reader_is_alone = is_same && passed < kLongestNs && (computed - reads.computed_ns) * 5 < passed * 2;
  was_judged = true;
  reads = {thread, 0, last_read_ns, computed};
}

bool shares_core_of_reader() { return shares_core; }

}  // namespace headroom::pager
