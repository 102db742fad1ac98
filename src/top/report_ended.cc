// See ledger_file.h. A report is written once, by the same words of the ledger as when processes leave
// (node/session.cc, leave_session()).
#include <time.h>
#include <unistd.h>

#include "base/process_end.h"
#include "base/settings.h"
#include "base/system_calls.h"
#include "node/session.h"
#include "preload/report.h"
#include "top/ledger_file.h"

namespace headroom::top {
namespace {

using node::Ledger;
using node::Member;
using node::MemberState;

constexpr uint64_t kPatienceNs = 2'000'000'000;

bool another_lives(const Ledger& ledger, const Member& member) {
  for (const Member& other : ledger.used_members()) {
    if (&other != &member && node::is_alive(other) && !base::has_ended(other.pid.load(std::memory_order_relaxed))) {
      return true;
    }
  }
  return false;
}

/// A process that lives sees its end by a descriptor, and reports later. Two that ended at once must not wait for each other.
bool is_seen_to_by_others(const Ledger& ledger, const Member& member) {
  const uint64_t until = base::monotonic_ns() + kPatienceNs;
  while (member.counted.load(std::memory_order_acquire) == 1 && another_lives(ledger, member)) {
    if (base::monotonic_ns() > until) {
      return true;
    }
    const timespec pause = {0, 5'000'000};
    (void)nanosleep(&pause, nullptr);
  }
  return member.counted.load(std::memory_order_acquire) != 1;
}

}  // namespace

void report_ended(Ledger& ledger, int process) {
  for (Member& member : ledger.used_members()) {
    if (member.pid.load(std::memory_order_relaxed) != process || member.counted.load(std::memory_order_acquire) != 1 ||
        is_seen_to_by_others(ledger, member)) {
      continue;
    }
    uint32_t word = member.state.load(std::memory_order_acquire);
    const MemberState now = node::state_in(word);
    const auto end = node::is_in_mpi(member) ? MemberState::kDied : MemberState::kLeft;
    if ((now != MemberState::kAlive && now != MemberState::kLeaving) ||
        !member.state.compare_exchange_strong(word, node::in_state(word, end), std::memory_order_acq_rel)) {
      continue;
    }
    node::release(ledger, member, member.memory.reserved_bytes.load(std::memory_order_relaxed));
    node::note_beyond(ledger, member, 0);
    ledger.held_slots.fetch_sub(member.turns.slots.exchange(0, std::memory_order_acq_rel), std::memory_order_acq_rel);
    const bool is_last =
        member.counted.exchange(0, std::memory_order_acq_rel) == 1 && ledger.alive.fetch_sub(1, std::memory_order_acq_rel) == 1;
    const uint32_t joined = ledger.joined.load(std::memory_order_acquire);
    if (is_last && ledger.reported.exchange(joined, std::memory_order_acq_rel) != joined &&
        ledger.reporter.load(std::memory_order_acquire) == 0) {
      base::load_settings();
      node::Session session;
      session.ledger = &ledger;
      preload::write_report(session);
    }
  }
}

}  // namespace headroom::top
