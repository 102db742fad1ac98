// See scheduler.h.
#include "sched/scheduler.h"

#include <time.h>

#include <algorithm>
#include <atomic>

#include "base/log.h"
#include "base/system_calls.h"
#include "pager/pager.h"
#include "sched/busy_threads.h"
#include "sched/idle_threads.h"
#include "sched/slots.h"
#include "sched/threads.h"
#include "sched/turn.h"
#include "sched/working_set.h"
#include "trace/counters.h"

namespace headroom::sched {
namespace {

using node::RunState;
using trace::Counter;

constexpr uint64_t kSpinNs = 20'000;        // with the slot: a message that comes at once costs no turn
constexpr uint64_t kIdleAfterNs = 500'000;  // then others may have our memory
constexpr uint32_t kLongestSleepNs = 1'000'000;
constexpr uint64_t kShortTurnNs = 1'000'000;
constexpr int kPollsBeforeGivingWay = 8;
constexpr uint64_t kBlockedAfterNs = 5'000'000;
constexpr uint64_t kLooksWithoutSlotNs = 5'000'000;
constexpr uint32_t kRoundsBeforeYield = 4;
constexpr uint32_t kRoundsBeforeSleep = 64;
constexpr uint64_t kAnotherWaitAfterNs = 1'000'000;  // since a library that waits has yielded last

std::atomic<bool> library_spins{false};
thread_local uint32_t empty_polls __attribute__((tls_model("initial-exec"))) = 0;
/// This thread is in poll_in_vain(): polls of functions of the program's that are called there are not counted.
thread_local bool looks_on __attribute__((tls_model("initial-exec"))) = false;
thread_local uint64_t polls_in_vain_since_ns __attribute__((tls_model("initial-exec"))) = 0;

std::atomic<uint64_t> turn_began_ns{0};
base::FutexLock taking_slot;
thread_local int calls_of_waits __attribute__((tls_model("initial-exec"))) = 0;
thread_local constinit TracedWait wait_in_call __attribute__((tls_model("initial-exec")));

/// Past the C library's function, which is interposed (mpi/progress_hook.cc).
void yield_processor() { (void)base::system_call(SYS_sched_yield); }

void note_working_set() {
  static base::FutexLock lock;
  static WorkingSet working_set;
  if (!lock.try_lock()) {
    return;  // the pager's thread must not wait for a thread that may wait for it
  }
  self().turns.slots_wanted.store(busy_threads(), std::memory_order_relaxed);
  const pager::CameBack came_back = pager::came_back_in_turn();
  working_set.turn_ended(bytes_of_blocks(self()), came_back.all, came_back.left_again);
  const int64_t needed = pager::needed_in_turn();
  self().turns.working_set_bytes.store(std::max(needed, working_set.expected()), std::memory_order_relaxed);
  self().turns.wants_all.store(working_set.needs_all() ? 1 : 0, std::memory_order_relaxed);
  lock.unlock();
}

/// A turn that only passed a message on (a stage of a collective) does not count as one: the rank has blocked as long as
/// before.
void set_blocked() {
  if (self().turns.run_state.load(std::memory_order_relaxed) != static_cast<uint32_t>(RunState::kBlocked)) {
    const uint64_t now = base::monotonic_ns();
    if (now - turn_began_ns.load(std::memory_order_relaxed) >= kShortTurnNs) {
      self().turns.blocked_since_ns.store(now, std::memory_order_relaxed);
      note_working_set();
    }
    set_run_state(RunState::kBlocked);
  }
}

/// This thread blocks. If it was the last known one the slot is given up. (The pager's thread, which may have the lock, has
/// done soon; a rank that takes the slot for another thread is not waited for.)
void begin_blocking() {
  set_this_thread_blocks(true);
  while (all_threads_block()) {
    if (taking_slot.try_lock()) {
      if (all_threads_block()) {
        (void)release_slot();
      }
      taking_slot.unlock();
      return;
    }
    yield_processor();
  }
}

void end_blocking() {
  set_this_thread_blocks(false);
  const base::LockHolder lock(taking_slot);
  pager::set_idle(false);
  if (!has_slot()) {
    wait_for_slot();
    trace::count(Counter::kTurns, has_slot() ? 1 : 0);
  }
  begin_turn();
}

void sleep_ns(uint32_t ns) {
  const timespec time = {0, static_cast<long>(ns)};
  (void)base::system_call(SYS_nanosleep, &time, nullptr);
}

}  // namespace

base::FutexLock& turn_lock() { return taking_slot; }

uint64_t turn_began_at() { return turn_began_ns.load(std::memory_order_relaxed); }

void leave_turns() {
  if (taking_slot.try_lock()) {
    if (release_slot()) {
      set_run_state(RunState::kRunning);
    }
    taking_slot.unlock();
  }
}

void begin_turn() {
  pager::set_idle(false);
  begin_counting_busy_threads();
  turn_began_ns.store(base::monotonic_ns(), std::memory_order_relaxed);
  set_run_state(RunState::kRunning);
}

bool look_whether_rank_waits(bool long_enough) {
  if (!some_thread_blocks()) {
    return true;
  }
  if (!taking_slot.try_lock()) {
    return false;  // another thread is about to go on, or has seen to it
  }
  const bool all_block = all_threads_block();
  const bool is_blocked = self().turns.run_state.load(std::memory_order_relaxed) == static_cast<uint32_t>(RunState::kBlocked);
  const bool had_slot = has_slot();
  // While the turn is cut the slot is missing for another reason.
  const bool waits = !pager::is_turn_cut() &&
                     ((all_block && !unknown_threads_compute()) || (!had_slot && is_blocked) || other_threads_are_idle());
  if (had_slot && (waits || (all_block && !unknown_threads_need_slot()))) {
    (void)release_slot();
    trace::count(Counter::kTurnsOfIdleThreads);
  }
  if (waits && (had_slot || long_enough)) {
    set_blocked();
    pager::set_idle(true);
  }
  taking_slot.unlock();
  return true;
}

void get_in_line(bool turn_ends) {
  if (turn_ends) {
    note_working_set();
  }
  become_ready();
  pager::set_idle(true);
}

bool end_turn_early() {
  if (!release_slot()) {
    return false;
  }
  get_in_line(true);
  return true;
}

void program_begins(bool spins) {
  library_spins.store(spins, std::memory_order_relaxed);
  if (!this_thread_blocks()) {
    set_this_thread_blocks(false);  // known now, so that all_threads_block() means something
  }
}

bool is_oversubscribed() { return pager::is_running() && ledger().alive.load(std::memory_order_relaxed) > ledger().cores(); }

bool waiters_may_sleep() {
  if (!pager::is_running()) {
    return false;
  }
  const node::Ledger& here = ledger();
  return here.alive.load(std::memory_order_relaxed) > here.cores() || here.lacks_room.load(std::memory_order_relaxed) != 0 ||
         base::settings().mode == Mode::kTurns;
}

namespace {

/// Once for each change, whichever thread sees it.
void say_mode(Mode now, const char* why) {
  static std::atomic<Mode> said{Mode::kAuto};
  if (said.exchange(now, std::memory_order_relaxed) != now) {
    char name[32];
    base::log_debug(base::Part::kSched, "mode %s: %s, %u ranks on %u cores",
                    base::choice_name("mode", static_cast<int>(now), name, sizeof name), why,
                    ledger().alive.load(std::memory_order_relaxed), static_cast<unsigned>(ledger().cores()));
  }
}

}  // namespace

Mode mode() {
  if (!pager::is_running()) {
    return Mode::kPass;
  }
  const Mode forced = base::settings().mode;
  Mode now = forced;
  bool is_short = false;
  if (forced == Mode::kAuto) {
    is_short = ledger().lacks_room.load(std::memory_order_relaxed) != 0;
    const bool yields = library_spins.load(std::memory_order_relaxed) && is_oversubscribed();
    now = is_short ? Mode::kTurns : yields ? Mode::kYield : Mode::kPass;
  }
  static thread_local Mode recorded __attribute__((tls_model("initial-exec"))) = Mode::kAuto;
  if (__builtin_expect(now != recorded, 0)) {
    recorded = now;
    say_mode(now, forced != Mode::kAuto ? "asked for" : is_short ? "room is short" : "room is enough");
    node::record_mode(ledger(), static_cast<uint32_t>(now));
    if (now != Mode::kTurns) {
      leave_turns();
    }
  }
  return now;
}

void give_slot_up() {
  wait_in_call.goes_on();
  if (!this_thread_blocks() && mode() == Mode::kTurns) {
    begin_blocking();
    (void)look_whether_rank_waits(true);
    if (has_slot()) {
      pager::set_turn_watched(true);  // others may be idle, and nobody polls here
    }
  }
}

void take_slot() {
  pager::begin_turn();
  if (this_thread_blocks() && calls_of_waits == 0) {
    end_blocking();
  }
  wait_in_call.ends();
}

void look_at_wait() {
  if (this_thread_blocks()) {
    (void)look_whether_rank_waits(true);
  }
}

void begin_call_of_waits() { ++calls_of_waits; }
void end_call_of_waits() {
  --calls_of_waits;
  take_slot();
}

Wait::Wait() { trace::count(mode() == Mode::kTurns ? Counter::kWaitsTurns : Counter::kWaitsYielding); }

Wait::~Wait() {
  if (gave_up_) {
    take_slot();
  } else {
    pager::begin_turn();
  }
  traced_.ends();
}

void Wait::pause() {
  ++polls_;
  if (mode() != Mode::kTurns) {
    traced_.goes_on();
    yield_processor();
    return;
  }
  const uint64_t now = base::monotonic_ns();
  started_ns_ = started_ns_ == 0 ? now : started_ns_;
  const uint64_t waited = now - started_ns_;
  if (waited < kSpinNs) {
    yield_processor();
    return;
  }
  if (!gave_up_) {
    gave_up_ = true;
    if (!this_thread_blocks()) {
      begin_blocking();
    }
  }
  (void)look_whether_rank_waits(waited > kIdleAfterNs);
  // One poll is not always full progress (rendezvous over UCX needs several), so each sleep is followed by a few. Where every
  // rank has a processor of its own, nobody needs this one: a sleep would only make the wait longer.
  if (polls_ % 4 != 0 || !is_oversubscribed()) {
    yield_processor();
    return;
  }
  sleep_ns(sleep_ns_);
  sleep_ns_ = std::min(sleep_ns_ * 2, kLongestSleepNs);
}

void progressed(bool moved) {
  static thread_local uint32_t idle_rounds __attribute__((tls_model("initial-exec"))) = 0;
  const Mode now = mode();
  if (moved || now == Mode::kPass) {
    idle_rounds = 0;
    return;
  }
  if (++idle_rounds < kRoundsBeforeYield) {
    return;
  }
  // Without a slot the processor belongs to the ranks that have one; they need it for milliseconds. If none has, all wait for
  // something that one of them is about to do without a slot.
  if (now == Mode::kTurns && idle_rounds > kRoundsBeforeSleep && !has_slot() && is_oversubscribed() && somebody_has_slot()) {
    sleep_ns(100'000);
    return;
  }
  yield_processor();
}

namespace {

/// In turns. A program that looks for messages between pieces of work goes on computing as long as a turn should last, then
/// lets others have theirs; one that has found nothing for long waits, and counts as blocked. A message of the library's may
/// need several looks on each side to come, each of which would cost its rank a turn: so it is looked for without the slot, for
/// a while, since the program may wait for something else, too.
/// True if it was found so.
bool poll_in_vain(uint64_t since_ns, uint64_t now, LookAgain again) {
  bool found = false;
  if (now - since_ns > kBlockedAfterNs) {
    give_slot_up();
    looks_on = true;
    const uint64_t until = base::monotonic_ns() + kLooksWithoutSlotNs;
    do {
      sleep_ns(100'000);
      found = again.look != nullptr && again.look(again.what);
    } while (again.look != nullptr && !found && base::monotonic_ns() < until);
    looks_on = false;
    take_slot();
  } else if (now - turn_began_ns.load(std::memory_order_relaxed) > kShortTurnNs && somebody_is_ready()) {
    give_slot_up();
    take_slot();
  }
  return found;
}

}  // namespace

void polled(bool found, LookAgain again) {
  if (looks_on) {
    return;
  }
  if (found) {
    empty_polls = 0;
    return;
  }
  if (++empty_polls < kPollsBeforeGivingWay) {
    return;
  }
  switch (mode()) {
    case Mode::kTurns: {
      const uint64_t now = base::monotonic_ns();
      if (empty_polls == kPollsBeforeGivingWay) {
        polls_in_vain_since_ns = now;
      }
      empty_polls = poll_in_vain(polls_in_vain_since_ns, now, again) ? 0 : empty_polls;
      break;
    }
    case Mode::kYield:
      yield_processor();
      break;
    default:
      break;
  }
}

void library_yielded() {
  static thread_local uint32_t yields __attribute__((tls_model("initial-exec"))) = 0;
  static thread_local uint64_t since_ns __attribute__((tls_model("initial-exec"))) = 0;
  static thread_local uint64_t last_ns __attribute__((tls_model("initial-exec"))) = 0;
  if (mode() != Mode::kTurns || this_thread_blocks()) {
    return;
  }
  const uint64_t now = base::monotonic_ns();
  if (now - last_ns > kAnotherWaitAfterNs) {
    yields = 0;
    since_ns = now;
  }
  if (++yields > kRoundsBeforeSleep) {
    trace::count(Counter::kWaitsUnannounced, yields == kRoundsBeforeSleep + 1 ? 1 : 0);
    (void)poll_in_vain(since_ns, now, {});
  }
  last_ns = base::monotonic_ns();
}

}  // namespace headroom::sched
