// See scheduler.h.
#include "sched/scheduler.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <atomic>

#include "base/system_calls.h"
#include "pager/pager.h"
#include "trace/counters.h"
#include "trace/recorder.h"

namespace headroom::sched {
namespace {

using node::Ledger;
using node::Member;
using node::MemberState;
using node::RunState;
using trace::Counter;

constexpr uint64_t kSpinNs = 20'000;        // with the slot: a message that comes at once costs no turn
constexpr uint64_t kIdleAfterNs = 500'000;  // then others may have our memory
constexpr uint32_t kLongestSleepNs = 1'000'000;
constexpr uint64_t kLookAgainNs = 2'000'000;
constexpr uint64_t kShortTurnNs = 1'000'000;
constexpr uint64_t kOverdueNs = 5'000'000'000;
constexpr uint64_t kOldFirstNs = 1'000'000'000;
constexpr int64_t kBellTimeoutNs = 10'000'000;
constexpr int kPollsBeforeGivingWay = 8;
constexpr uint64_t kBlockedAfterNs = 5'000'000;
constexpr uint32_t kRoundsBeforeYield = 4;
constexpr uint32_t kRoundsBeforeSleep = 64;

std::atomic<bool> library_spins{false};
thread_local uint32_t empty_polls __attribute__((tls_model("initial-exec"))) = 0;
thread_local uint64_t polls_in_vain_since_ns __attribute__((tls_model("initial-exec"))) = 0;

Ledger& ledger() { return *pager::session().ledger; }
Member& self() { return *pager::session().self; }

void set_run_state(RunState state) {
  self().run_state.store(static_cast<uint32_t>(state), std::memory_order_release);
  if (trace::is_recording()) {
    trace::record({base::monotonic_ns(), trace::EventKind::kRunState, static_cast<uint16_t>(state), 0, {}});
  }
}

std::atomic<uint64_t> turn_began_ns{0};

/// A turn that only passed a message on (a stage of a collective) does not count as one: the rank has blocked as long as
/// before.
void set_blocked() {
  if (self().run_state.load(std::memory_order_relaxed) != static_cast<uint32_t>(RunState::kBlocked)) {
    const uint64_t now = base::monotonic_ns();
    if (now - turn_began_ns.load(std::memory_order_relaxed) >= kShortTurnNs) {
      self().blocked_since_ns.store(now, std::memory_order_relaxed);
      self().working_set_bytes.store(
          self().reserved_bytes.load(std::memory_order_relaxed) - self().other_bytes.load(std::memory_order_relaxed),
          std::memory_order_relaxed);
    }
    set_run_state(RunState::kBlocked);
  }
}

void note_held_slots(uint32_t held) {
  std::atomic<uint32_t>& most = ledger().most_held_slots;
  uint32_t known = most.load(std::memory_order_relaxed);
  while (held > known && !most.compare_exchange_weak(known, held, std::memory_order_relaxed)) {
  }
}

bool is_alive(const Member& member) {
  return member.state.load(std::memory_order_relaxed) == static_cast<uint32_t>(MemberState::kAlive);
}

/// Whether what `candidate` is expected to use fits beside what those use who compute. One that would not fit alone either
/// loses nothing by company. (Ranks that drive each other's memory out while both compute read it again and again.)
bool fits(const Member& candidate) {
  int64_t room = ledger().budget;
  int64_t in_use = 0;
  for (const Member& member : ledger().members) {
    if (is_alive(member)) {
      room -= member.other_bytes.load(std::memory_order_relaxed);
      const bool computes = &member != &candidate && member.has_slot.load(std::memory_order_relaxed) != 0;
      in_use += computes ? member.working_set_bytes.load(std::memory_order_relaxed) : 0;
    }
  }
  const int64_t wanted = candidate.working_set_bytes.load(std::memory_order_relaxed);
  return in_use == 0 || wanted > room || in_use + wanted <= room;
}

bool try_take_slot() {
  uint32_t held = ledger().held_slots.load(std::memory_order_relaxed);
  if (held > 0 && held < ledger().slots() && !fits(self())) {
    trace::count(Counter::kTurnsPutOff);
    return false;
  }
  while (held < ledger().slots()) {
    // acq_rel: pairs with release_slot() of the member whose turn ended.
    if (ledger().held_slots.compare_exchange_weak(held, held + 1, std::memory_order_acq_rel)) {
      note_held_slots(held + 1);
      self().has_slot.store(1, std::memory_order_release);
      return true;
    }
  }
  return false;
}

/// Who should have the free slot: of those who fit the one with most of its memory here, unless somebody has waited long.
Member* next_ready() {
  Member* chosen = nullptr;
  uint64_t oldest = UINT64_MAX;
  int64_t most = -1;
  const uint64_t now = base::monotonic_ns();
  for (Member& member : ledger().members) {
    if (!is_alive(member) || member.run_state.load(std::memory_order_acquire) != static_cast<uint32_t>(RunState::kReady) ||
        !fits(member)) {
      continue;
    }
    const uint64_t since = member.ready_since_ns.load(std::memory_order_relaxed);
    const int64_t resident = member.reserved_bytes.load(std::memory_order_relaxed);
    const bool old = now > since && now - since > kOldFirstNs;
    if (old ? since < oldest : (oldest == UINT64_MAX && resident > most)) {
      chosen = &member;
      oldest = old ? since : oldest;
      most = resident;
    }
  }
  return chosen;
}

void release_slot() {
  if (self().has_slot.exchange(0, std::memory_order_acq_rel) == 0) {
    return;
  }
  ledger().held_slots.fetch_sub(1, std::memory_order_acq_rel);
  if (Member* member = next_ready()) {
    member->slot_bell.fetch_add(1, std::memory_order_release);
    base::futex_wake(&member->slot_bell, 1, true);
  }
}

void wait_for_slot() {
  const uint64_t started = base::monotonic_ns();
  self().ready_since_ns.store(started, std::memory_order_relaxed);
  set_run_state(RunState::kReady);
  for (;;) {
    // The bell is read before the slots are looked at: a ring in between makes the futex return at once.
    const uint32_t bell = self().slot_bell.load(std::memory_order_acquire);
    if (try_take_slot()) {
      break;
    }
    if (base::monotonic_ns() - started > kOverdueNs) {
      note_held_slots(ledger().held_slots.fetch_add(1, std::memory_order_acq_rel) + 1);
      self().has_slot.store(1, std::memory_order_release);
      trace::count(Counter::kTurnsOverdue);
      break;
    }
    base::futex_wait(&self().slot_bell, bell, kBellTimeoutNs, true);
  }
  trace::count(Counter::kSlotWaitNs, base::monotonic_ns() - started);
}

// Threads: the process has one slot. It is given up when every thread that has called MPI is blocked there or idle elsewhere
// (in a condition variable, say: it has used no processor for a while), and taken back by the first that goes on from MPI; the
// others find it taken.
struct MpiThread {
  std::atomic<bool> used;
  std::atomic<bool> blocked;
  clockid_t processor_time;
  uint64_t seen_ns;  // of processor time, when the threads were last looked at; under taking_slot
};
constexpr int kMostThreads = 256;
MpiThread mpi_threads[kMostThreads];
std::atomic<int> uncounted_threads{0};  // more than that: they count as busy
uint64_t looked_at_ns = 0;              // under taking_slot
base::FutexLock taking_slot;
constexpr int kUnknownThread = -1;
constexpr int kUncountedThread = -2;
thread_local int this_thread __attribute__((tls_model("initial-exec"))) = kUnknownThread;
thread_local bool this_thread_blocks __attribute__((tls_model("initial-exec"))) = false;
thread_local int calls_of_waits __attribute__((tls_model("initial-exec"))) = 0;

void thread_ends(void*) {
  if (this_thread == kUncountedThread) {
    uncounted_threads.fetch_sub(1, std::memory_order_relaxed);
  } else {
    mpi_threads[this_thread].used.store(false, std::memory_order_release);
  }
}

void register_thread() {
  static const pthread_key_t key = [] {
    pthread_key_t made = 0;
    pthread_key_create(&made, thread_ends);
    return made;
  }();
  pthread_setspecific(key, &this_thread);
  const base::LockHolder lock(taking_slot);
  for (int index = 0; index < kMostThreads; ++index) {
    MpiThread& thread = mpi_threads[index];
    if (!thread.used.load(std::memory_order_acquire)) {
      if (pthread_getcpuclockid(pthread_self(), &thread.processor_time) != 0) {
        break;
      }
      thread.blocked.store(false, std::memory_order_relaxed);
      thread.seen_ns = 0;
      thread.used.store(true, std::memory_order_release);
      this_thread = index;
      return;
    }
  }
  uncounted_threads.fetch_add(1, std::memory_order_relaxed);
  this_thread = kUncountedThread;
}

bool all_block() {
  for (const MpiThread& thread : mpi_threads) {
    if (thread.used.load(std::memory_order_acquire) && !thread.blocked.load(std::memory_order_acquire)) {
      return false;
    }
  }
  return uncounted_threads.load(std::memory_order_relaxed) == 0;
}

/// Whether those that are not blocked in MPI have hardly used a processor since they were looked at before. Under taking_slot.
bool others_are_idle(uint64_t now) {
  uint64_t used_ns = 0;
  for (MpiThread& thread : mpi_threads) {
    if (!thread.used.load(std::memory_order_acquire)) {
      continue;
    }
    timespec time = {};
    (void)clock_gettime(thread.processor_time, &time);
    const uint64_t until_now = static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
    used_ns += thread.blocked.load(std::memory_order_acquire) ? 0 : until_now - thread.seen_ns;
    thread.seen_ns = until_now;
  }
  const uint64_t passed = now - looked_at_ns;
  looked_at_ns = now;
  return passed < kLookAgainNs * 10 && used_ns < passed / 20 && uncounted_threads.load(std::memory_order_relaxed) == 0;
}

/// This thread blocks; true if it was the last one, so that the slot was given up.
bool begin_blocking() {
  if (this_thread == kUnknownThread) {
    register_thread();
  }
  this_thread_blocks = true;
  if (this_thread >= 0) {
    mpi_threads[this_thread].blocked.store(true, std::memory_order_release);
  }
  if (!all_block()) {
    return false;
  }
  release_slot();
  return true;
}

void end_blocking() {
  this_thread_blocks = false;
  if (this_thread >= 0) {
    mpi_threads[this_thread].blocked.store(false, std::memory_order_release);
  }
  const base::LockHolder lock(taking_slot);
  pager::set_idle(false);
  if (self().has_slot.load(std::memory_order_relaxed) == 0) {
    wait_for_slot();
    trace::count(Counter::kTurns);
  }
  turn_began_ns.store(base::monotonic_ns(), std::memory_order_relaxed);
  set_run_state(RunState::kRunning);
}

void sleep_ns(uint32_t ns) {
  const timespec time = {0, static_cast<long>(ns)};
  (void)base::system_call(SYS_nanosleep, &time, nullptr);
}

}  // namespace

void set_library_spins(bool spins) { library_spins.store(spins, std::memory_order_relaxed); }

bool is_oversubscribed() { return pager::is_running() && ledger().alive.load(std::memory_order_relaxed) > ledger().cores(); }

bool waiters_may_sleep() {
  return pager::is_running() && (ledger().short_memory.load(std::memory_order_relaxed) != 0 || is_oversubscribed() ||
                                 base::settings().mode == Mode::kTurns);
}

Mode mode() {
  if (!pager::is_running()) {
    return Mode::kPass;
  }
  const Mode forced = base::settings().mode;
  Mode now = forced;
  if (forced == Mode::kAuto) {
    const bool is_short = ledger().short_memory.load(std::memory_order_relaxed) != 0;
    const bool yields = library_spins.load(std::memory_order_relaxed) && is_oversubscribed();
    now = is_short ? Mode::kTurns : yields ? Mode::kYield : Mode::kPass;
  }
  static thread_local Mode recorded __attribute__((tls_model("initial-exec"))) = Mode::kAuto;
  if (__builtin_expect(now != recorded, 0)) {
    recorded = now;
    node::record_mode(ledger(), static_cast<uint32_t>(now));
  }
  return now;
}

void give_slot_up() {
  if (!this_thread_blocks && mode() == Mode::kTurns && begin_blocking()) {
    set_blocked();
    pager::set_idle(true);
  }
}

void take_slot() {
  if (this_thread_blocks && calls_of_waits == 0) {
    end_blocking();
  }
}

bool still_waiting() {
  if (!this_thread_blocks || self().has_slot.load(std::memory_order_relaxed) == 0) {
    return this_thread_blocks;
  }
  const base::LockHolder lock(taking_slot);
  const uint64_t now = base::monotonic_ns();
  if (now - looked_at_ns < kLookAgainNs || !others_are_idle(now)) {
    return false;
  }
  release_slot();
  set_blocked();
  pager::set_idle(true);
  trace::count(Counter::kTurnsOfIdleThreads);
  return true;
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
  }
}

void Wait::pause() {
  ++polls_;
  if (mode() != Mode::kTurns) {
    sched_yield();
    return;
  }
  const uint64_t now = base::monotonic_ns();
  started_ns_ = started_ns_ == 0 ? now : started_ns_;
  const uint64_t waited = now - started_ns_;
  if (waited < kSpinNs) {
    sched_yield();
    return;
  }
  if (!gave_up_) {
    gave_up_ = true;
    last_ = this_thread_blocks ? still_waiting() : begin_blocking();
  }
  last_ = last_ || still_waiting();
  if (last_ && waited > kIdleAfterNs) {
    set_blocked();
    pager::set_idle(true);
  }
  // One poll is not always full progress (rendezvous over UCX needs several), so each sleep is followed by a few.
  if (polls_ % 4 != 0) {
    sched_yield();
    return;
  }
  sleep_ns(sleep_ns_);
  sleep_ns_ = sleep_ns_ * 2 < kLongestSleepNs ? sleep_ns_ * 2 : kLongestSleepNs;
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
  // Without a slot the processor belongs to those who have one; they need it for milliseconds.
  if (now == Mode::kTurns && idle_rounds > kRoundsBeforeSleep && self().has_slot.load(std::memory_order_relaxed) == 0) {
    sleep_ns(100'000);
    return;
  }
  sched_yield();
}

namespace {

/// In turns. A program that looks for messages between pieces of work goes on computing as long as a turn should last, then
/// lets others have theirs; one that has found nothing for long waits, and counts as blocked.
void polled_in_vain() {
  const uint64_t now = base::monotonic_ns();
  if (empty_polls == kPollsBeforeGivingWay) {
    polls_in_vain_since_ns = now;
  }
  if (now - polls_in_vain_since_ns > kBlockedAfterNs) {
    give_slot_up();
    sleep_ns(100'000);
    take_slot();
  } else if (now - turn_began_ns.load(std::memory_order_relaxed) > kShortTurnNs && next_ready() != nullptr) {
    give_slot_up();
    take_slot();
  }
}

}  // namespace

void polled(bool found) {
  if (found) {
    empty_polls = 0;
    return;
  }
  if (++empty_polls < kPollsBeforeGivingWay) {
    return;
  }
  switch (mode()) {
    case Mode::kTurns:
      polled_in_vain();
      break;
    case Mode::kYield:
      sched_yield();
      break;
    default:
      break;
  }
}

}  // namespace headroom::sched
