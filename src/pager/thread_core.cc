// See thread_core.h.
#include "pager/thread_core.h"

#include <sched.h>

#include "base/system_calls.h"
#include "node/cores.h"
#include "pager/state.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

constexpr int kReadsToJoin = 64;           // in a row, all for one thread
constexpr uint64_t kToPartNs = 5'000'000;  // without any

pid_t launcher = 0;  // whose cores the thread may use, or 0
cpu_set_t own;       // the program's
cpu_set_t beside;    // and those that the thread may use besides
bool has_cores_beside = false;

int32_t reader = 0;
int reads_in_a_row = 0;
uint64_t last_read_ns = 0;
bool shares_core = false;

void run_on(const cpu_set_t& cores) { (void)base::system_call(SYS_sched_setaffinity, 0, sizeof cores, &cores); }

/// Ranks that have come since may have some of the cores.
void look_for_cores_beside() {
  static uint32_t known = 0;
  const node::Ledger& ledger = *state.session->ledger;
  const uint32_t now = ledger.cores_in_mask.load(std::memory_order_acquire);
  if (launcher == 0 || now == known) {
    return;
  }
  if (known == 0) {
    CPU_ZERO(&own);
    if (base::is_error(base::system_call(SYS_sched_getaffinity, 0, sizeof own, &own))) {
      launcher = 0;  // more cores than a set has room for
      return;
    }
  }
  known = now;
  beside = node::cores_of_helper(ledger, own, launcher);
  has_cores_beside = !CPU_EQUAL(&beside, &own);
  trace::count(trace::Counter::kPagerRunsBeside, has_cores_beside ? 1 : 0);
  run_on(beside);
  shares_core = false;
}

}  // namespace

void find_cores_to_use() { launcher = node::find_launcher(); }

void follow_cores() {
  look_for_cores_beside();
  if (!has_cores_beside || (reads_in_a_row < kReadsToJoin && !shares_core)) {
    return;
  }
  const bool is_alone = reads_in_a_row >= kReadsToJoin && base::monotonic_ns() - last_read_ns < kToPartNs;
  const bool joins = is_alone && CPU_COUNT(&own) == 1;
  if (joins != shares_core) {
    trace::count(trace::Counter::kPagerJoinsReader, joins ? 1 : 0);
    shares_core = joins;
    run_on(joins ? own : beside);
  }
}

void note_page_reader(int32_t thread) {
  reads_in_a_row = thread != reader ? 0 : reads_in_a_row < kReadsToJoin ? reads_in_a_row + 1 : reads_in_a_row;
  reader = thread;
  last_read_ns = base::monotonic_ns();
}

bool shares_core_of_reader() { return shares_core; }

}  // namespace headroom::pager
