// The pager's thread: waits for faults, requests, finished transfers and other ranks, and lets the rest of this folder act.
#include "pager/pager_thread.h"

#include <poll.h>
#include <pthread.h>
#include <time.h>

#include "base/log.h"
#include "base/own_threads.h"
#include "node/lost_claims.h"
#include "pager/arming.h"
#include "pager/claims.h"
#include "pager/discard.h"
#include "pager/ended_transfers.h"
#include "pager/eviction.h"
#include "pager/fault.h"
#include "pager/first_touch.h"
#include "pager/fork.h"
#include "pager/forked_children.h"
#include "pager/invariants.h"
#include "pager/other_memory.h"
#include "pager/pager.h"
#include "pager/peer_requests.h"
#include "pager/requests.h"
#include "pager/room.h"
#include "pager/serving.h"
#include "pager/single_pages.h"
#include "pager/state.h"
#include "pager/store_room.h"
#include "pager/streams.h"
#include "pager/thread_core.h"
#include "pager/transition_lock.h"
#include "pager/turns.h"
#include "pager/waiting_accesses.h"
#include "pager/wake_latency.h"
#include "trace/counters.h"
#include "trace/recorder.h"

namespace headroom::pager {
namespace {

using base::Status;

constexpr uint64_t kMeasureEveryNs = 1'000'000'000;  // of memory that cannot move
constexpr uint64_t kSampleEveryNs = 10'000'000;      // of a trace: 100 points a second are drawn

node::LostClaims lost_claims;
std::atomic<void (*)()> when_changed{nullptr};

void tell_of_change() {
  if (void (*function)() = when_changed.load(std::memory_order_acquire)) {
    function();
  }
}

void arm_and_tell() {
  become_armed();
  tell_of_change();
}

std::atomic<uint32_t> stands_still_for{0};  // futex; how many threads have asked for it

void stand_still_for_asker(Request& request) {
  while (state.store->in_flight() > 0) {
    if (!collect_transfer()) {
      pollfd wanted = {state.store->descriptor(), POLLIN, 0};
      (void)base::system_call(SYS_ppoll, &wanted, 1, nullptr, nullptr, 8);
    }
  }
  end_wake_latency();
  constexpr int64_t kLongestNs = 2'000'000'000;  // a signal handler of the asker's may need content on storage
  const uint64_t since = base::monotonic_ns();
  const auto asker = static_cast<uint32_t>(request.count);
  stands_still_for.store(asker, std::memory_order_relaxed);
  finish(request);
  while (stands_still_for.load(std::memory_order_acquire) == asker && base::monotonic_ns() - since < kLongestNs) {
    base::futex_wait(&stands_still_for, asker, kLongestNs, false);
  }
}

void serve_request(Request& request) {
  switch (request.kind) {
    case RequestKind::kFault:
      take_fault(request.block, kWholeBlock, request.write, request.thread, &request);
      return;
    case RequestKind::kBring:
      bring(request);
      return;
    case RequestKind::kDiscard:
      discard(request.block, request.count);
      break;
    case RequestKind::kGrow: {
      const Status status =
          arena::commit(*state.partition, request.bytes, state.engine->kind() != base::EngineChoice::kSigsegv);
      if (status == Status::kOk) {
        cover_new_memory();
      }
      finish(request, status);
      return;
    }
    case RequestKind::kFork:  // armed by now
      finish(request, prepare_fork());
      return;
    case RequestKind::kStandStill:
      stand_still_for_asker(request);
      return;
    case RequestKind::kComplete:
      end_wake_latency();  // a child may take its time
      complete_children();
      break;
    case RequestKind::kAdopt:
      cover_static_region(state.partition->static_region_count.load(std::memory_order_acquire) - 1);
      break;
    case RequestKind::kArm:
      arm_and_tell();
      break;
    case RequestKind::kWillNeed:
      read_announced(request.block, request.count);
      break;
    case RequestKind::kWillNotNeed:
      evict_unneeded(request.block, request.count);
      break;
    case RequestKind::kWillOverwrite:
    case RequestKind::kWillFill:
      forget_content(request.block, request.count, request.kind == RequestKind::kWillOverwrite);
      break;
    case RequestKind::kCheck:
      finish(request, check_invariants() ? Status::kOk : Status::kUnavailable);
      return;
    default:
      break;
  }
  finish(request);
}

constexpr int kAtOnce = 64;  // of requests and of faults, before the disk is looked after again: many threads may ask for ever

void serve_requests() {
  begin_requests();
  for (int left = kAtOnce; left > 0; --left) {
    Request* request = next_request();
    if (request == nullptr) {
      return;
    }
    serve_request(*request);
  }
  nudge();  // there may be more
}

void serve_engine() {
  constexpr int kFew = 16;
  Fault faults[kFew];
  for (int found = kFew, looks = 0; found == kFew && looks < kAtOnce / kFew; ++looks) {
    found = state.engine->read_faults(faults, kFew);
    for (int index = 0; index < found; ++index) {
      uint64_t offset = 0;
      if (arena::find_offset(*state.partition, faults[index].address, offset)) {
        const auto page = static_cast<uint32_t>(offset % arena::kBlockBytes / arena::kPageBytes);
        take_fault(arena::block_of(offset), page, faults[index].write, faults[index].thread, nullptr);
      }
    }
  }
}

/// A sample for the trace, if it is time for one.
void sample() {
  static uint64_t sampled_ns = 0;
  const uint64_t now = base::monotonic_ns();
  if (!trace::is_recording() || now - sampled_ns < kSampleEveryNs) {
    return;
  }
  sampled_ns = now;
  look_before_sample();
  const node::Member& self = *state.session->self;
  const auto counted = [](trace::Counter counter) { return static_cast<int64_t>(trace::counted(counter)); };
  trace::record({now,
                 trace::EventKind::kSample,
                 static_cast<uint16_t>(self.turns.run_state.load(std::memory_order_relaxed)),
                 static_cast<uint32_t>(self.rank.load(std::memory_order_relaxed) + 1),
                 {self.memory.reserved_bytes.load(std::memory_order_relaxed), bytes_besides_blocks(self),
                  counted(trace::Counter::kBytesRead), counted(trace::Counter::kBytesWritten), counted(trace::Counter::kFaults),
                  counted(trace::Counter::kStorageWaitNs)}});
  trace::write_recorded();
}

/// In how many ms allocations are to be looked at (first_touch.cc), or -1.
int until_next_look() {
  if (!watches_first_touch()) {
    return -1;
  }
  const base::LockHolder lock(transition_lock);
  return look_at_first_touch();
}

constexpr int kIdleWorkMs = 5;  // a turn lasts tens of milliseconds, and its end is to be seen soon

/// For how long there is nothing to do unless something happens; -1: for ever.
int until_next_work() {
  const int first_touch = state.armed ? -1 : until_next_look();
  if (!state.armed) {
    // While memory is enough there may be turns (--mode turns), and threads that do nothing in them. Each second it looks at
    // memory that cannot move, and whether another rank has failed.
    const int others = state.turn_is_watched ? kIdleWorkMs : 1000;
    return first_touch < 0 || others < first_touch ? others : first_touch;
  }
  const bool waits_for_room = state.waiting.count() > 0 && state.store->in_flight() == 0;
  const int otherwise = holds_wake_latency() ? kHoldLatencyMs : 1000;
  return waits_for_room || state.waits_for_others || state.turn_is_cut ? 1 : state.turn_is_watched ? kIdleWorkMs : otherwise;
}

int wait_ms() {
  constexpr int kSampleMs = static_cast<int>(kSampleEveryNs / 1'000'000);
  const int work = until_next_work();
  return trace::is_recording() && (work < 0 || work > kSampleMs) ? kSampleMs : work;
}

/// Single pages are wanted one after the other, and sleeping in between costs as much as the disk does: as long as there is a
/// core for it, the thread stays awake. (An idle virtual processor takes 10 us and more to wake.) Where there are more ranks
/// than cores, or they share one, it is the core of the thread that waits.
bool looks_again_at_once() {
  if (state.awake_until_ns == 0) {
    return false;
  }
  if (base::monotonic_ns() > state.awake_until_ns) {
    state.awake_until_ns = 0;
    return false;
  }
  const node::Ledger& ledger = *state.session->ledger;
  const bool has_core = static_cast<uint64_t>(ledger.alive.load(std::memory_order_relaxed)) < ledger.cores();
  return (has_core && !shares_core_of_reader()) ||
         (state.waiting.count() > 0 && ledger.held_slots.load(std::memory_order_relaxed) <= ledger.cores());
}

/// Serves the requests of a reader of single pages, and the pages that the disk brings it, without a look at everything, which
/// takes as long as a quarter of a read. The thread does so kLooks times before it looks at everything.
void serve_single_pages() {
  constexpr int kLooks = 32;
  for (int look = 0; look < kLooks; ++look) {
    if (state.store->has_completions() && collect_transfer()) {
      pump();
    }
    serve_engine();
  }
}

int request_descriptor = -1;

std::atomic<clockid_t> own_clock{-1};

void* pager_thread(void*) {
  clockid_t clock = -1;
  own_clock.store(pthread_getcpuclockid(pthread_self(), &clock) == 0 ? clock : -1, std::memory_order_relaxed);
  node::Session& session = *state.session;
  if (session.ledger->short_memory.load(std::memory_order_acquire) != 0) {  // a rank that has just joined is not rung
    arm_and_tell();
  }
  enum { kRequests, kStore, kListener, kDoorbell, kWatched, kFaults, kCount };
  for (;;) {
    pollfd wanted[kCount + 2 * kMaxForkChildren] = {};
    const int descriptors[kCount] = {request_descriptor,          state.store->descriptor(),  session.listen_descriptor,
                                     session.doorbell_descriptor, session.watched_descriptor, state.engine->descriptor()};
    for (int index = 0; index < kCount; ++index) {
      wanted[index] = {descriptors[index], POLLIN, 0};
    }
    int forked[2 * kMaxForkChildren];
    const int forked_count = fork_descriptors(forked);
    for (int index = 0; index < forked_count; ++index) {
      wanted[kCount + index] = {forked[index], POLLIN, 0};
    }
    follow_wake_latency();
    const bool stays_awake = looks_again_at_once();
    if (stays_awake) {
      serve_single_pages();
    }
    const int timeout_ms = stays_awake ? 0 : wait_ms();
    timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    (void)base::system_call(SYS_ppoll, wanted, kCount + forked_count, timeout_ms < 0 ? nullptr : &timeout, nullptr, 8);
    if (state.armed) {
      follow_cores();
    }
    follow_turns();
    if (wanted[kStore].revents != 0) {
      // Several end together often. Were all put in their places first, the disk would rest meanwhile: the thread that waited
      // for the first goes on, and says by its next fault how far to read ahead.
      for (int left = Store::kDepth; left > 0 && collect_transfer(); --left) {  // other threads that wait have their turn, too
        serve_engine();
        pump();
      }
    }
    if (wanted[kFaults].revents != 0) {
      serve_engine();
    }
    if (wanted[kRequests].revents != 0) {
      serve_requests();
    }
    if (wanted[kListener].revents != 0) {
      node::serve_newcomer(session);
    }
    if (wanted[kWatched].revents != 0) {  // before the doorbell, which may choose another to watch
      node::watched_ended(session);
    }
    if (wanted[kDoorbell].revents != 0) {
      node::answer_doorbell(session);
      node::choose_watched(session);
      if (!state.armed && session.ledger->short_memory.load(std::memory_order_acquire) != 0) {
        arm_and_tell();
      }
      tell_of_change();  // also to a process that a fork has armed before
      answer_requests_for_room();
      take_requests_of_peers();
    }
    if (node::outlived_failure(session)) {
      base::die("another rank of this node ended with an error, see its message; this one cannot go on without it");
    }
    for (int index = 0; index < forked_count; ++index) {
      if (wanted[kCount + index].revents != 0) {
        serve_forked(forked[index]);
      }
    }
    const bool is_time_to_measure = base::monotonic_ns() - state.other_measured_ns > kMeasureEveryNs;
    if (is_time_to_measure && !state.armed && look_at_other_memory()) {
      note_short();
      arm_and_tell();
    } else if (is_time_to_measure && state.armed) {
      reserve_other_memory();
      trace::count(trace::Counter::kClaimsFoundLost, lost_claims.give_back(*session.ledger, *session.self) ? 1 : 0);
      end_lack_of_room();
      end_old_pause();
    }
    pump();
    answer_peers();
    tell_of_room();
    check_now_and_then();
    sample();
  }
}

}  // namespace

uint32_t stand_still() {
  static std::atomic<uint32_t> askers{0};
  Request request = {};
  request.kind = RequestKind::kStandStill;
  request.count = askers.fetch_add(1, std::memory_order_relaxed) + 1;
  perform(request);
  return static_cast<uint32_t>(request.count);
}

void go_on(uint32_t asker) {
  if (stands_still_for.compare_exchange_strong(asker, 0, std::memory_order_release, std::memory_order_relaxed)) {
    base::futex_wake(&stands_still_for, 1, false);
  }
}

void call_when_changed(void (*function)()) { when_changed.store(function, std::memory_order_release); }

bool start_pager_thread(int requests) {
  request_descriptor = requests;
  find_cores_to_use();
  return base::start_thread("headroom-pager", pager_thread, nullptr);
}

int64_t own_processor_ns() {
  const clockid_t clock = own_clock.load(std::memory_order_relaxed);
  timespec time = {};
  return clock != -1 && clock_gettime(clock, &time) == 0 ? time.tv_sec * 1'000'000'000 + time.tv_nsec : 0;
}

}  // namespace headroom::pager
