// See end.h.
#include "rpipe/end.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "rpipe/address.h"
#include "rpipe/handles.h"
#include "rpipe/host.h"
#include "rpipe/mirror.h"
#include "rpipe/records.h"

namespace headroom::rpipe {

namespace {

constexpr uint64_t kDefaultHeapBytes = uint64_t{64} << 20;

std::atomic<uint32_t> waiting_threads{0};
// Read where a buffer is freed: as cheap as a static one.
__attribute__((tls_model("initial-exec"))) thread_local bool is_noted = false;

WriterOptions writer_options(const rpipe_options& options) {
  const auto policy = static_cast<rpipe_policy>(options.policy);
  const bool walks = policy == RPIPE_FIRST_FIT || policy == RPIPE_NEXT_FIT;
  return {.width = options.width == 0 ? kMostBuffers : options.width,
          .heap_bytes = options.heap_bytes == 0 ? kDefaultHeapBytes : units_of(options.heap_bytes) * kUnitBytes,
          .policy = policy,
          .collects_always = options.frees == RPIPE_IMMEDIATE || (options.frees == RPIPE_FREES_BY_POLICY && !walks)};
}

}  // namespace

void note_thread() {
  if (!is_noted) {
    is_noted = true;
    if (waiting_threads.fetch_add(1, std::memory_order_relaxed) > 0) {
      own_root().has_threads.store(1, std::memory_order_release);
    }
  }
}

int End::begin() {
  own_ = take_record(peer_.rank, own_offset_);
  if (own_ == nullptr) {
    return -ENOMEM;
  }
  opening_ = next_opening(peer_.rank, options_.channel);  // only now: a beginning that failed is no opening
  writer.open(own_memory(), *own_, writer_options(options_));
  own_->role = static_cast<uint16_t>(role_);
  own_->flags = static_cast<uint16_t>(options_.flags | (peer_.is_mirrored ? kMirrored : 0));
  own_->width = options_.width == 0 ? kMostBuffers : options_.width;
  own_->state.store(static_cast<uint32_t>(EndState::kOpen), std::memory_order_relaxed);
  own_->key.store(key_of(options_.channel, opening_), std::memory_order_release);
  if (writes()) {
    add_end(static_cast<uint32_t>(own_rank()), own_->index, *this, true);
  }
  if (peer_.is_mirrored) {
    announce(peer_, *own_);
  }
  connect_to(peer_of(peer_.rank));
  (void)look_for_peers();
  if (Root* const root = peer_.root.load(std::memory_order_acquire)) {
    ring(*root);  // it may wait for this end
  }
  return 0;
}

int End::break_by(int error, const char* format, ...) {
  int none = 0;
  static base::FutexLock lock;
  const base::LockHolder holder(lock);
  if (broken_.load(std::memory_order_relaxed) == 0) {
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(reason_, sizeof reason_, format, arguments);
    va_end(arguments);
    (void)broken_.compare_exchange_strong(none, error, std::memory_order_acq_rel);
  }
  return broken_.load(std::memory_order_relaxed);
}

int End::break_by_death(const char* what) {
  const bool failed = peer_.has_failed.load(std::memory_order_relaxed);
  return break_by(-EPIPE, "rank %d (on %s) %s", peer_.rank, peer_.host, failed ? messages_between_nodes().failure : what);
}

// ---- meeting -------------------------------------------------------------------------------------------------------------

int End::check_fit(const Record& theirs) {
  const auto role = static_cast<rpipe_role>(theirs.role);
  const rpipe_role wanted = role_ == RPIPE_BOTH ? RPIPE_BOTH : role_ == RPIPE_READER ? RPIPE_WRITER : RPIPE_READER;
  const char* const names[] = {"reads", "writes", "reads and writes"};
  if (role != wanted) {
    return break_by(-EPROTO, "the ends do not fit: rank %d %s, rank %d %s", own_rank(), names[role_], peer_.rank,
                    role <= RPIPE_BOTH ? names[role] : "does neither");
  }
  if ((theirs.flags & RPIPE_PULL) != (options_.flags & RPIPE_PULL)) {
    return break_by(-EPROTO, "the ends do not fit: one of rank %d and rank %d has RPIPE_PULL, the other has not", own_rank(),
                    peer_.rank);
  }
  if ((theirs.flags & kMirrored) != (own_->flags & kMirrored)) {
    return break_by(-EPROTO, "the ends do not fit: one of rank %d and rank %d has %s, the other has not", own_rank(),
                    peer_.rank, messages_between_nodes().backend == RPIPE_OFI ? "RPIPE_OFI" : "RPIPE_MPI");
  }
  return 0;
}

Record* End::look_up_theirs(Peer& peer) const {
  Root* const root = peer.root.load(std::memory_order_acquire);
  if (root == nullptr) {
    return nullptr;
  }
  const bool is_self = peer.rank == own_rank();
  const uint64_t key = key_of(options_.channel, is_self ? opening_ ^ 1 : opening_);
  for (uint64_t offset = root->records[own_rank()].load(std::memory_order_acquire); offset != 0;) {
    auto* const record = reinterpret_cast<Record*>(peer.memory.at(offset, kRecordBytes));
    if (record == nullptr || record->key.load(std::memory_order_acquire) == key) {
      return record;
    }
    offset = record->next;
  }
  return nullptr;
}

int End::find_theirs() {
  Record* const record = look_up_theirs(peer_);
  if (record == nullptr) {
    const Record* const without_messages = peer_.is_mirrored ? look_up_theirs(peer_of(peer_.rank)) : nullptr;
    const int error = without_messages == nullptr ? 0 : check_fit(*without_messages);
    return error == 0 ? -EAGAIN : error;
  }
  if (const int error = check_fit(*record)) {
    return error;
  }
  reader.open(peer_.memory, *record);
  if (reads()) {
    add_end(static_cast<uint32_t>(peer_.rank), record->index, *this, false);
  }
  theirs_.store(record, std::memory_order_release);
  return 0;
}

int End::meet() {
  if (is_met()) {
    return 0;
  }
  if (const int error = broken_.load(std::memory_order_acquire)) {
    return error;
  }
  const base::LockHolder holder(meeting_);
  if (is_met()) {
    return 0;
  }
  const bool was_dead = peer_.is_dead.load(std::memory_order_acquire);
  if (peer_.root.load(std::memory_order_acquire) == nullptr) {
    connect_to(peer_);
    (void)look_for_peers();
  }
  const int error = find_theirs();
  if (error == -EAGAIN && was_dead) {
    return break_by_death("has ended without opening its end");
  }
  return error;
}

int End::wait_for_connection(int64_t& timeout_ns) {
  const int64_t longest_look_ns = has_mirrors.load(std::memory_order_relaxed) ? 1'000'000 : 50'000'000;
  const uint64_t began_ns = base::monotonic_ns();
  HostWait host_wait;
  while (peer_.root.load(std::memory_order_acquire) == nullptr) {
    const int error = meet();
    if (error != -EAGAIN) {
      return error;
    }
    const int64_t left = timeout_ns < 0 ? longest_look_ns : timeout_ns - static_cast<int64_t>(base::monotonic_ns() - began_ns);
    if (left <= 0) {
      return -ETIMEDOUT;
    }
    poll_mirrors(peer_.is_mirrored);
    host_wait.begin();
    wait_for_peers(std::min(left, longest_look_ns));
    (void)look_whether_dead(peer_);
  }
  if (timeout_ns > 0) {
    timeout_ns = std::max<int64_t>(timeout_ns - static_cast<int64_t>(base::monotonic_ns() - began_ns), 1);
  }
  return 0;
}

// ---- breaking ------------------------------------------------------------------------------------------------------------

/// After it was found that there is nothing to do for the moment: whether there ever will be.
int End::broken_now() {
  const auto state = static_cast<EndState>(theirs_.load(std::memory_order_relaxed)->state.load(std::memory_order_acquire));
  if (state == EndState::kClosed) {
    return break_by(-EPIPE, "rank %d (on %s) has closed its end", peer_.rank, peer_.host);
  }
  if (state == EndState::kLost) {
    return break_by(-ENOMEM, "no memory is left here for what rank %d (on %s) has written", peer_.rank, peer_.host);
  }
  if (peer_.is_dead.load(std::memory_order_acquire)) {
    return break_by_death("has ended without closing the pipe");
  }
  return -EAGAIN;
}

bool End::may_tell_waits(WaitsFor waits_for) const {
  return waits_for != WaitsFor::kNothing && !is_for_threads() && own_root().has_threads.load(std::memory_order_relaxed) == 0;
}

bool End::look_for_deadlock(WaitsFor waits_for, Watch& watch) const {
  const Root* const root = peer_.root.load(std::memory_order_acquire);
  if (waits_for != WaitsFor::kRoom || !may_tell_waits(waits_for) || root == nullptr) {
    return false;
  }
  if (peer_.is_mirrored) {
    return waits_for_this_rank(peer_);
  }
  if (root->has_threads.load(std::memory_order_acquire) != 0) {
    return false;
  }
  const auto self = static_cast<uint32_t>(own_rank());
  const uint64_t theirs = root->waits_for.load(std::memory_order_acquire);
  const bool waits_here = theirs == (static_cast<uint64_t>(WaitsFor::kRoom) << 32 | self) ||
                          theirs == (static_cast<uint64_t>(WaitsFor::kMessage) << 32 | self);
  if (!waits_here) {
    watch.is_on = false;
    return false;
  }
  const uint64_t waits = root->waits.load(std::memory_order_acquire);
  if (!watch.is_on) {
    watch = {true, waits};
  }
  // It has looked twice since this end began to watch it, and so at all that this process did before, and found nothing.
  return waits >= watch.waits + 3;
}

// ---- writing and reading -------------------------------------------------------------------------------------------------

int End::try_allocate(uint64_t bytes, bool may_grow, raddr_t& buffer) {
  if (const int error = meet()) {
    return error;
  }
  if (const int error = broken_now(); error != -EAGAIN) {
    return error;
  }
  const base::LockHolder holder(write_lock, is_for_threads());
  uint32_t number = 0;
  if (const int error = writer.allocate(bytes, may_grow, number)) {
    return error;
  }
  buffer = to_raddr({static_cast<uint32_t>(own_rank()), own_->index, number, writer.buffer(number).generation});
  return 0;
}

int End::write(uint32_t buffer, uint64_t bytes) {
  {
    const base::LockHolder holder(write_lock, is_for_threads());
    if (const int error = writer.write(buffer, bytes)) {
      return error;
    }
  }
  if (peer_.is_mirrored) {
    forward(*own_);
  }
  ring(*peer_.root.load(std::memory_order_relaxed));
  return 0;
}

bool End::try_for_room() {
  const int met = meet();
  if (met != 0 || broken_now() != -EAGAIN) {
    return met != -EAGAIN;
  }
  const base::LockHolder holder(write_lock, is_for_threads());
  return writer.try_for_room();
}

int End::try_peek(uint64_t& bytes) {
  if (!is_met()) {
    if (const int error = meet()) {
      return error;
    }
  }
  const int found = reader.peek(bytes);
  if (found != -EAGAIN) {
    return found;
  }
  const int error = broken_now();
  const int once_more = error == -EAGAIN ? error : reader.peek(bytes);  // messages that it had written before it went
  return once_more == -EAGAIN ? error : once_more;
}

int End::take(raddr_t& buffer) {
  uint32_t number = 0;
  if (const int error = reader.take(number)) {
    return error;
  }
  const Record& theirs = *theirs_.load(std::memory_order_relaxed);
  buffer = to_raddr({static_cast<uint32_t>(peer_.rank), theirs.index, number, reader.buffer(number).generation});
  if (theirs.state.load(std::memory_order_relaxed) == static_cast<uint32_t>(EndState::kClosed)) {
    ring(*peer_.root.load(std::memory_order_relaxed));  // it waits until all is taken
  }
  if (peer_.is_mirrored) {
    tell_taken(peer_, theirs);
  }
  return 0;
}

bool End::release(uint32_t buffer) {
  const uint64_t bytes = reader.buffer(buffer).bytes;
  if (!reader.release(buffer)) {
    return false;
  }
  ring_after_fence(*peer_.root.load(std::memory_order_relaxed));
  if (peer_.is_mirrored) {
    tell_freed(peer_, *theirs_.load(std::memory_order_relaxed), buffer, bytes);
  }
  return true;
}

// ---- the end -------------------------------------------------------------------------------------------------------------

void End::begin_close() {
  own_->state.store(static_cast<uint32_t>(EndState::kClosed), std::memory_order_release);
  if (peer_.is_mirrored) {
    forward(*own_);
  }
  if (Root* const root = peer_.root.load(std::memory_order_acquire)) {
    ring(*root);
  }
}

int End::close(int64_t timeout_ns) {
  // Said first: two that close while each has something of the other's unread would wait for each other.
  begin_close();
  int result = 0;
  if (writes() && writer.written() > 0) {
    result = wait(timeout_ns, WaitsFor::kNothing, [this](bool /*has_waited*/) {
      if (writer.is_all_taken()) {
        return 0;
      }
      const int error = is_met() ? broken_now() : meet();
      return error == 0 ? -EAGAIN : writer.is_all_taken() ? 0 : error;
    });
    result = result == -EAGAIN ? -ETIMEDOUT : result;
  }
  if (host() != nullptr) {
    host()->count(writer.written(), writer.written_bytes());
  }
  if (writes()) {
    remove_end(static_cast<uint32_t>(own_rank()), own_->index, true);
  }
  if (reads() && is_met()) {
    remove_end(static_cast<uint32_t>(peer_.rank), theirs_.load(std::memory_order_relaxed)->index, false);
  }
  reader.close();
  (void)tell_closed();
  return result;
}

bool End::tell_closed() {
  if (!has_told_) {
    Record* const met = theirs_.load(std::memory_order_relaxed);
    Record* const theirs = met != nullptr ? met : look_up_theirs(peer_);
    if (theirs == nullptr) {
      return false;
    }
    theirs->peer_closed.store(1, std::memory_order_release);
    has_told_ = true;
    if (peer_.is_mirrored) {
      tell_back(peer_, *theirs);
    }
  }
  return true;
}

bool End::try_to_go() {
  const bool both = tell_closed() && own_->peer_closed.load(std::memory_order_acquire) != 0;
  if (!both && !peer_.is_dead.load(std::memory_order_acquire)) {
    return false;
  }
  if (peer_.is_mirrored && !try_to_forget(*own_) && !peer_.is_dead.load(std::memory_order_acquire)) {
    return false;
  }
  writer.close();
  give_record_back(peer_.rank, own_offset_);
  return true;
}

void End::count_wait(uint32_t sleeps, bool for_room) {
  sleeps_.fetch_add(sleeps, std::memory_order_relaxed);
  waits_for_room_.fetch_add(for_room ? 1 : 0, std::memory_order_relaxed);
}

void End::fill_state(rpipe_state& state) {
  state.backend = !is_met() ? uint32_t{RPIPE_ANY} : peer_.is_mirrored ? messages_between_nodes().backend : uint32_t{RPIPE_NODE};
  state.peer = static_cast<uint32_t>(peer_.rank);
  state.written = writer.written();
  state.bytes_written = writer.written_bytes();
  state.read = reader.read();
  state.bytes_read = reader.read_bytes();
  const base::LockHolder holder(write_lock, is_for_threads());
  if (writes()) {
    (void)writer.is_all_back();
  }
  state.freed = writer.freed() + (reader.read() - reader.held());
  state.waits_for_room = waits_for_room_.load(std::memory_order_relaxed);
  state.sleeps = sleeps_.load(std::memory_order_relaxed);
  state.heap_bytes = writer.heap().units() * kUnitBytes;
  state.heap_used = writer.heap().used_units() * kUnitBytes;
  state.largest_free = writer.heap().largest_free() * kUnitBytes;
}

}  // namespace headroom::rpipe
