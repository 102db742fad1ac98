// See waiting.h.
#include "direct/waiting.h"

#include "direct/endpoint.h"
#include "pager/pager.h"
#include "sched/scheduler.h"
#include "trace/counters.h"

namespace headroom::direct {
namespace {

constexpr uint32_t kSpins = 2;  // the rank that is waited for mostly needs this processor
// Where ranks share processors, a rank that sleeps must be woken, perhaps on a processor that is busy while another one is
// idle; a rank that yields is where a processor becomes free. In turns the slot is needed by others.
constexpr uint32_t kYields = 400;
constexpr uint32_t kYieldsInTurns = 24;
// Nobody wakes a rank whose message comes from another node.
constexpr uint32_t kYieldsForNetwork = 4000;
constexpr uint32_t kEager = 400;
constexpr uint32_t kSpinsOfThreads = 100;
constexpr uint32_t kFirstPoke = 64;
constexpr uint32_t kPokeEach = 256;
// Processes that nothing here knows of may share the processors: another job, or other nodes of an emulation.
constexpr uint32_t kSurelyLong = 256;
constexpr int64_t kLongestSleepNs = 2'000'000;
constexpr int64_t kShortSleepNs = 50'000;

}  // namespace

void Waiting::pause() {
  ++rounds_;
  timer_woke_ = false;
  if (rounds_ >= kFirstPoke && rounds_ % kPokeEach == kFirstPoke % kPokeEach) {
    trace::count(trace::Counter::kDirectPokes);
    traced_.goes_on();
    also_elsewhere_ = poke_();
    endpoint().look_after_peers();
    if (also_elsewhere_ || rounds_ > kSurelyLong) {
      (void)base::system_call(SYS_sched_yield);
    }
  }
  if (rounds_ > kSpins && (for_file_ || sched::waiters_may_sleep())) {
    pause_or_sleep();
    return;
  }
  if (rounds_ > kSpinsOfThreads && endpoint().threads().are_several()) {
    (void)base::system_call(SYS_sched_yield);  // there may be more threads than processors
    return;
  }
#if defined(__x86_64__)
  if (rounds_ > kEager) {
    __builtin_ia32_pause();  // 40 to 140 cycles on some processors
  }
#endif
}

void Waiting::pause_or_sleep() {
  traced_.goes_on();
  if (endpoint().has_left_records()) {
    return;  // the awaited message may be among them
  }
  const uint32_t yields = sched::mode() == sched::Mode::kTurns ? kYieldsInTurns : also_elsewhere_ ? kYieldsForNetwork : kYields;
  if (rounds_ < kSpins + yields) {
    (void)base::system_call(SYS_sched_yield);
    return;
  }
  Root& root = endpoint().own_root();
  if (!announced_) {
    if (!gave_slot_up_ && sched::mode() == sched::Mode::kTurns) {
      gave_slot_up_ = true;
      sched::give_slot_up();
    }
    announced_ = true;
    also_elsewhere_ = poke_();
    bell_ = root.bell.load(std::memory_order_acquire);
    root.sleeping.store(1, std::memory_order_relaxed);
    // Pairs with the fence in Endpoint::wake().
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return;
  }
  announced_ = false;
  trace::count(trace::Counter::kDirectSleeps);
  // A rank that expects no other to sleep may miss that this one does (Endpoint::wake()).
  const bool shortly = also_elsewhere_ || !sched::waiters_may_sleep();
  base::futex_wait(&root.bell, bell_, shortly ? kShortSleepNs : kLongestSleepNs, true);
  timer_woke_ = !shortly && root.bell.load(std::memory_order_relaxed) == bell_;
  if (gave_slot_up_) {
    sched::look_at_wait();
  }
  also_elsewhere_ = poke_();
  endpoint().ring_away();
}

Waiting::~Waiting() {
  trace::count(trace::Counter::kDirectWaitsEndedByTimer, timer_woke_ ? 1 : 0);
  // (Among several threads another one may sleep: then the next sender rings for nothing, once.)
  if (announced_ && !endpoint().threads().are_several()) {
    endpoint().own_root().sleeping.store(0, std::memory_order_relaxed);
  }
  if (gave_slot_up_) {
    sched::take_slot();
  } else if (pager::is_armed()) {
    pager::begin_turn();
  }
  traced_.ends();
}

}  // namespace headroom::direct
