// Starting the pager, its thread's loop, and the calls that other layers make; see pager.h.
#include "pager/pager.h"

#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/kernel_abi.h"
#include "base/log.h"
#include "pager/checksums.h"
#include "pager/fork.h"
#include "pager/labels.h"
#include "pager/read_buffers.h"
#include "pager/state.h"
#include "pager/thread.h"
#include "trace/counters.h"
#include "trace/recorder.h"

namespace headroom::pager {

State state;

namespace detail {
arena::Partition the_partition;
node::Session the_session;
std::atomic<int> progress{0};
}  // namespace detail

using detail::progress;
using detail::the_session;

namespace {

using base::Status;

constexpr uint64_t kMeasureEveryNs = 1'000'000'000;
constexpr uint64_t kSampleEveryNs = 10'000'000;

// Held while memory is claimed, discarded or mapped without the pager's help, and while the process arms.
base::FutexLock transition_lock;
std::atomic<bool> armed_flag{false};
std::atomic<bool> forked_child{false};
std::atomic<void (*)()> when_changed{nullptr};
std::atomic<bool (*)(bool)> turn_is_over{nullptr};

void tell_of_change() {
  if (void (*function)() = when_changed.load(std::memory_order_acquire)) {
    function();
  }
}

void become_armed() {
  if (!state.armed) {  // else who holds the lock may be waiting for this thread
    base::LockHolder lock(transition_lock);
    arm();
    armed_flag.store(true, std::memory_order_release);
  }
  tell_of_change();
}

void serve_request(Request& request) {
  switch (request.kind) {
    case RequestKind::kFault:
      take_fault(request.block, kWholeBlock, request.write, &request);
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
    case RequestKind::kFork:
      become_armed();  // only what is watched can be kept as it was
      finish(request, prepare_fork());
      return;
    case RequestKind::kComplete:
      complete_children();
      break;
    case RequestKind::kAdopt:
      cover_static_region(state.partition->static_region_count.load(std::memory_order_acquire) - 1);
      break;
    case RequestKind::kArm:
      become_armed();
      break;
    case RequestKind::kWillNeed:
      read_announced(request.block, request.count);
      break;
    case RequestKind::kWillNotNeed:
      evict_unneeded(request.block, request.count);
      break;
    case RequestKind::kWillOverwrite:
      forget_content(request.block, request.count);
      break;
    case RequestKind::kCheck:
      finish(request, check_invariants() ? Status::kOk : Status::kUnavailable);
      return;
    default:
      break;
  }
  finish(request);
}

void serve_engine() {
  Fault faults[16];
  for (;;) {
    const int found = state.engine->read_faults(faults, 16);
    for (int index = 0; index < found; ++index) {
      uint64_t offset = 0;
      if (arena::find_offset(*state.partition, faults[index].address, offset)) {
        const auto page = static_cast<uint32_t>(offset % arena::kBlockBytes / arena::kPageBytes);
        take_fault(arena::block_of(offset), page, faults[index].write, nullptr);
      }
    }
    if (found < 16) {
      return;
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
  const node::Member& self = *state.session->self;
  const auto counted = [](trace::Counter counter) { return static_cast<int64_t>(trace::counted(counter)); };
  trace::record({now,
                 trace::EventKind::kSample,
                 static_cast<uint16_t>(self.run_state.load(std::memory_order_relaxed)),
                 static_cast<uint32_t>(self.rank.load(std::memory_order_relaxed) + 1),
                 {self.reserved_bytes.load(std::memory_order_relaxed), self.other_bytes.load(std::memory_order_relaxed),
                  counted(trace::Counter::kBytesRead), counted(trace::Counter::kBytesWritten), counted(trace::Counter::kFaults),
                  counted(trace::Counter::kStorageWaitNs)}});
  trace::write_recorded();
}

int wait_ms() {
  if (trace::is_recording()) {
    return static_cast<int>(kSampleEveryNs / 1'000'000);
  }
  const bool failed = state.session->ledger->failed_at_ns.load(std::memory_order_relaxed) != 0;
  if (!state.armed) {
    return failed ? 1000 : -1;
  }
  const bool waits_for_room = (state.pending_count > 0 || state.bring_count > 0) && state.store->in_flight() == 0;
  return waits_for_room || state.waits_for_others || state.turn_is_cut ? 1 : 1000;
}

/// Single pages are wanted one after the other, and sleeping in between costs as much as the disk does: as long as there is a
/// core for it, the thread stays awake. (An idle virtual processor takes 10 us and more to wake.) Where there are more ranks
/// than cores, it is the core of the thread that waits.
bool looks_again_at_once() {
  if (state.awake_until_ns == 0) {
    return false;
  }
  if (base::monotonic_ns() > state.awake_until_ns) {
    state.awake_until_ns = 0;
    return false;
  }
  const node::Ledger& ledger = *state.session->ledger;
  return static_cast<uint64_t>(ledger.alive.load(std::memory_order_relaxed)) < ledger.cores() ||
         (state.pending_count > 0 && ledger.held_slots.load(std::memory_order_relaxed) <= ledger.cores());
}

int request_descriptor = -1;

void* pager_thread(void*) {
  node::Session& session = *state.session;
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
    const int timeout_ms = looks_again_at_once() ? 0 : wait_ms();
    timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    (void)base::system_call(SYS_ppoll, wanted, kCount + forked_count, timeout_ms < 0 ? nullptr : &timeout, nullptr, 8);
    if (wanted[kStore].revents != 0) {
      (void)collect_transfers();
    }
    if (wanted[kFaults].revents != 0) {
      serve_engine();
    }
    if (wanted[kRequests].revents != 0) {
      while (Request* request = next_request()) {
        serve_request(*request);
      }
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
        become_armed();
      }
      tell_of_change();  // also to a process that a fork has armed before
      answer_requests_for_room();
    }
    if (node::outlived_failure(session)) {
      base::die("another rank of this node ended with an error, see its message; this one cannot go on without it");
    }
    for (int index = 0; index < forked_count; ++index) {
      if (wanted[kCount + index].revents != 0) {
        serve_forked(forked[index]);
      }
    }
    if (state.armed && base::monotonic_ns() - state.other_measured_ns > kMeasureEveryNs) {
      reserve_other_memory();
    }
    write_back_idle();
    pump();
    tell_of_room();
    sample();
  }
}

Status start_once() {
  const base::Settings& settings = base::settings();
  if (settings.memory == 0 || *settings.storage == 0) {
    base::log_warning("started without `headroom run`: no budget and no storage are set, so memory is left to the system");
    return Status::kUnavailable;
  }
  const base::Result<StoreFiles> files = open_store_files();
  if (!files.ok()) {
    base::die("cannot use the storage directory, see above");
  }
  state.files = files.value;
  state.engine = make_engine();
  state.store = make_store(state.files);
  if (node::join_session(the_session) != Status::kOk ||
      arena::open_partition(detail::the_partition, the_session.index, may_have_huge_pages()) != Status::kOk) {
    return Status::kUnavailable;
  }
  state.session = &the_session;
  state.partition = &detail::the_partition;
  node::Member& self = *the_session.self;
  trace::move_counters(self.counters);
  self.engine.store(static_cast<uint32_t>(state.engine->kind()), std::memory_order_relaxed);
  self.store.store(static_cast<uint32_t>(state.store->kind()), std::memory_order_relaxed);
  self.store_direct.store(state.files.direct ? 1 : 0, std::memory_order_relaxed);
  self.arena_descriptor.store(detail::the_partition.descriptor, std::memory_order_relaxed);
  self.arena_inode.store(arena::inode_of(detail::the_partition.descriptor), std::memory_order_release);
  const uint64_t blocks = detail::the_partition.limit / arena::kBlockBytes;
  state.room_reserved = static_cast<uint64_t*>(base::reserve_memory(1 << 16));
  state.may_touch_ahead = static_cast<std::atomic<bool>*>(base::reserve_memory(blocks));
  state.may_be_huge = static_cast<std::atomic<bool>*>(base::reserve_memory(blocks));
  const base::Result<int> requests = open_request_descriptor();
  if (!state.resident.open(blocks) || !open_single_pages(blocks) || !open_read_buffers() || state.room_reserved == nullptr ||
      state.may_touch_ahead == nullptr || state.may_be_huge == nullptr || !requests.ok()) {
    base::log_warning("no address space or descriptors for the pager (see `ulimit -v`, `ulimit -n`)");
    return Status::kNoMemory;
  }
  if (settings.checksums == base::ChecksumsChoice::kOn && !open_checksums(detail::the_partition.limit / arena::kPageBytes)) {
    base::die("--checksums on: no address space for them (see `ulimit -v`)");
  }
  request_descriptor = requests.value;
  if (*settings.trace != 0 && open_labels(blocks) && trace::open_trace(settings.trace)) {
    timespec now = {};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    trace::record({base::monotonic_ns(),
                   trace::EventKind::kBegin,
                   0,
                   0,
                   {now.tv_sec * 1'000'000'000 + now.tv_nsec, the_session.ledger->budget,
                    static_cast<int64_t>(the_session.ledger->slots()), static_cast<int64_t>(arena::kBlockBytes)}});
  }
  return start_thread(pager_thread, nullptr) ? Status::kOk : Status::kUnavailable;
}

void make_short() {
  note_short();
  node::Ledger& ledger = *the_session.ledger;
  const int64_t members = ledger.alive.load(std::memory_order_relaxed);
  if (ledger.budget < members * kFloorBytes) {
    base::die(
        "--memory %lld MiB is too small for %lld processes on this node: each needs at least %lld MiB; raise it to %lld MiB "
        "or more",
        static_cast<long long>(ledger.budget >> 20), static_cast<long long>(members), static_cast<long long>(kFloorBytes >> 20),
        static_cast<long long>(members * kFloorBytes >> 20));
  }
}

}  // namespace

void note_short() {
  std::atomic<uint32_t>& is_short = the_session.ledger->short_memory;
  if (is_short.load(std::memory_order_relaxed) == 0 && is_short.exchange(1, std::memory_order_acq_rel) == 0) {
    node::ring_everybody(the_session);
    node::ring(the_session, the_session.index);  // our own waiting changes too
  }
}

Status start() {
  int expected = 0;
  if (progress.compare_exchange_strong(expected, 1, std::memory_order_acq_rel)) {
    const Status status = start_once();
    const base::Settings& settings = base::settings();
    if (status != Status::kOk && settings.memory != 0 &&
        (settings.engine != base::EngineChoice::kAuto || settings.store != base::StoreChoice::kAuto ||
         settings.mode != base::ModeChoice::kAuto)) {
      base::die("an engine, store or mode was asked for, but Headroom cannot manage this process's memory, see above");
    }
    progress.store(status == Status::kOk ? 2 : 3, std::memory_order_release);
    base::futex_wake(&progress, 1 << 20, false);
    return status;
  }
  while (progress.load(std::memory_order_acquire) == 1) {
    base::futex_wait(&progress, 1, -1, false);
  }
  return progress.load(std::memory_order_acquire) == 2 ? Status::kOk : Status::kUnavailable;
}

arena::Partition& partition() { return detail::the_partition; }
bool engine_serves_kernel() { return state.engine != nullptr && state.engine->serves_kernel(); }
base::EngineChoice engine() { return state.engine->kind(); }
bool is_armed() { return armed_flag.load(std::memory_order_acquire); }

void call_when_changed(void (*function)()) { when_changed.store(function, std::memory_order_release); }

void ask_at_storage_faults(bool (*function)(bool)) { turn_is_over.store(function, std::memory_order_release); }

bool must_wait_for_turn(bool may_begin) {
  bool (*function)(bool) = turn_is_over.load(std::memory_order_acquire);
  state.turn_is_cut = function != nullptr && function(may_begin);
  return state.turn_is_cut;
}

void claim_blocks(uint64_t count) {
  const auto bytes = static_cast<int64_t>(count * arena::kBlockBytes);
  {
    base::LockHolder lock(transition_lock);
    if (is_armed()) {
      return;  // reserved when touched
    }
    count_other_memory_roughly();
    if (the_session.ledger->short_memory.load(std::memory_order_acquire) == 0 &&
        node::reserve(*the_session.ledger, *the_session.self, bytes)) {
      return;
    }
  }
  make_short();
  Request request = {};
  request.kind = RequestKind::kArm;
  perform(request);
}

void discard_blocks(uint64_t block, uint64_t count) {
  if (count == 0) {
    return;
  }
  {
    base::LockHolder lock(transition_lock);
    if (!is_armed()) {
      for (uint64_t each = block; each < block + count; ++each) {
        unpin(each);
      }
      arena::punch(detail::the_partition, block, count);
      trace::count(trace::Counter::kBlocksDiscarded, count);
      return;
    }
  }
  Request request = {};
  request.kind = RequestKind::kDiscard;
  request.block = block;
  request.count = count;
  perform(request);
}

void let_touch_ahead(uint64_t block, uint64_t count, bool may) {
  for (uint64_t each = block; each < block + count; ++each) {
    state.may_touch_ahead[each].store(may, std::memory_order_relaxed);
  }
}

void let_have_huge_pages(const void* address, uint64_t bytes, bool may) {
  constexpr uint64_t kSize = arena::kHugePageBytes;
  const uint64_t begin = reinterpret_cast<uintptr_t>(address) - detail::the_partition.base;
  // Leave ends with what it was given for: a huge page would fill what nobody has claimed.
  const uint64_t first = may ? (begin + kSize - 1) / kSize : begin / kSize;
  const uint64_t last = may ? (begin + bytes) / kSize : (begin + bytes + kSize - 1) / kSize;
  const uint64_t committed = detail::the_partition.committed.load(std::memory_order_acquire) / kSize;
  const uint64_t end = last < committed ? last : committed;
  if (first >= end || detail::the_partition.huge_pages == arena::HugePages::kNowhere) {
    return;
  }
  const base::LockHolder lock(transition_lock);
  bool some = may;
  for (uint64_t page = first; page < end && !some; ++page) {
    some = state.may_be_huge[page].load(std::memory_order_relaxed);
  }
  if (!some || is_armed()) {
    return;
  }
  arena::let_have_huge_pages(detail::the_partition.base + first * kSize, (end - first) * kSize, may);
  trace::count(trace::Counter::kHugeBytesAsked, may ? (end - first) * kSize : 0);
  for (uint64_t page = first; page < end; ++page) {
    state.may_be_huge[page].store(true, std::memory_order_relaxed);  // and may be yet, if it may no longer become so
  }
}

void unclaim_blocks(uint64_t count) {
  base::LockHolder lock(transition_lock);
  if (!is_armed()) {
    node::release(*the_session.ledger, *the_session.self, static_cast<int64_t>(count * arena::kBlockBytes));
  }
}

Status grow(uint64_t bytes) {
  {
    base::LockHolder lock(transition_lock);
    if (bytes <= detail::the_partition.committed.load(std::memory_order_relaxed)) {
      return Status::kOk;
    }
    if (!is_armed()) {
      return arena::commit(detail::the_partition, bytes, true);
    }
  }
  Request request = {};
  request.kind = RequestKind::kGrow;
  request.bytes = bytes;
  perform(request);
  return request.status;
}

Status add_static_region(uintptr_t address, uint64_t bytes, uint64_t offset,
                         bool (*copy)(uintptr_t address, uint64_t bytes, uint64_t offset)) {
  base::LockHolder lock(transition_lock);
  if (!copy(address, bytes, offset)) {
    return Status::kNoMemory;
  }
  const Status status = arena::add_static_region(detail::the_partition, address, bytes, offset);
  if (status == Status::kOk && is_armed()) {
    Request request = {};
    request.kind = RequestKind::kAdopt;
    perform(request);
  }
  return status;
}

bool is_armed_for_sure() {
  const base::LockHolder lock(transition_lock);
  return is_armed();
}

bool populate_while_unarmed(uintptr_t address, uint64_t bytes) {
  base::LockHolder lock(transition_lock);
  if (is_armed()) {
    return false;
  }
  if (!engine_serves_kernel()) {
    // The process may arm while the kernel is at work on this range; no page of it may be missing then.
    const uintptr_t page = address & ~(arena::kPageBytes - 1);
    (void)base::system_call(SYS_madvise, page, address + bytes - page, MADV_POPULATE_WRITE);
  }
  return true;
}

bool mark_kept(uint64_t block, uint64_t bit, uint64_t& before) {
  const base::LockHolder lock(transition_lock);
  before = word_of(block).load(std::memory_order_relaxed);
  do {
    if ((before & bit) != 0) {
      return false;
    }
  } while (!word_of(block).compare_exchange_weak(before, (before | bit) + arena::kHold + arena::kWriteHold));
  return true;
}

bool overlaps(const void* address, uint64_t bytes) {
  const arena::Partition& arena = partition();
  if (covers(address)) {
    return true;
  }
  const auto begin = reinterpret_cast<uintptr_t>(address);
  if (begin < arena.base && begin + bytes > arena.base) {
    return true;
  }
  const int count = arena.static_region_count.load(std::memory_order_acquire);
  for (int index = 0; index < count; ++index) {
    const arena::StaticRegion& region = arena.static_regions[index];
    if (begin < region.address && begin + bytes > region.address) {
      return true;
    }
  }
  return false;
}

void* alias_of(const void* address) {
  uint64_t offset = 0;
  (void)arena::find_offset(detail::the_partition, reinterpret_cast<uintptr_t>(address), offset);
  return reinterpret_cast<void*>(detail::the_partition.alias + offset);
}

void set_idle(bool idle) {
  if (state.idle.exchange(idle, std::memory_order_relaxed) != idle && idle && is_armed() &&
      base::settings().evict != base::EvictChoice::kLazy) {
    nudge();
  }
}

void before_fork() {
  if (forked_child.load(std::memory_order_relaxed)) {
    make_private_in_child();
    return;
  }
  if (!is_running()) {
    return;
  }
  Request request = {};
  request.kind = RequestKind::kFork;
  perform(request);
  if (request.status != Status::kOk) {
    base::log_warning("no descriptors or addresses for a fork's copy of memory: the child will not have it (see `ulimit -n`)");
  }
  transition_lock.lock();
}

void after_fork_in_parent() {
  if (is_running() && !forked_child.load(std::memory_order_relaxed)) {
    transition_lock.unlock();
    finish_fork_in_parent();
  }
}

void after_fork_in_child() {
  if (forked_child.load(std::memory_order_relaxed)) {
    finish_fork_in_grandchild();
  }
  if (!is_running()) {
    return;
  }
  base::set_death_hook(nullptr);
  progress.store(3, std::memory_order_release);
  forked_child.store(true, std::memory_order_release);
  transition_lock.reset();
  trace::stop_counting();
  trace::stop_recording();
  finish_fork_in_child();
  node::forget_session_in_child(the_session);
}

bool is_forked_child() { return forked_child.load(std::memory_order_relaxed); }

void prepare_to_leave() {
  if (!has_fork_children()) {
    return;
  }
  Request request = {};
  request.kind = RequestKind::kComplete;
  perform(request);
}

}  // namespace headroom::pager
