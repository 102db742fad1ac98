// Long content among several threads (MPI_THREAD_MULTIPLE): copied without the endpoint's lock, so that no thread's short
// message waits for another thread's long one.
//
// The thread that finds that a message has come for a receive only takes note of it, and leaves the copying to the thread that
// waits for that receive. That thread asks finish() each time that it looks. The transfer is MATCHED meanwhile, so its sender
// cannot take it back; a sender that would not wait copies its content aside. If no thread asks for a while (that thread
// computes, and another one waits for a later message), a thread that makes progress copies the content.
//
// A receive's `record` is set from when it is left until it is complete, so it cannot be cancelled. While `is_left` it is in
// the list that begins with `first_left_`; the thread that takes it out, with the lock, copies.
#include "direct/endpoint.h"
#include "sched/preemption.h"
#include "sched/scheduler.h"
#include "trace/counters.h"

namespace headroom::direct {
namespace {

constexpr uint64_t kLeftFrom = 16 << 10;  // shorter content is copied sooner than the lock is given back and taken again
// Where threads that wait sleep soon, they look less often.
constexpr uint32_t kLooksPastLeft = 200;
constexpr uint32_t kLooksBeforeSleep = 8;

}  // namespace

bool Endpoint::leaves(const Receiving& receiving, const Transfer& transfer) const {
  return receiving.may_be_left && receiving.into.combine == nullptr && transfer.bytes >= kLeftFrom;
}

/// The message that was claimed is this process's, but nobody copies it yet: its sender may copy it aside.
void Endpoint::set_matched(RecordHeader* record) {
  if (ChannelReader::kind_of(*record) == RecordKind::kTransfer &&
      is_taken(transfer_of(record).state.load(std::memory_order_relaxed))) {
    transfer_of(record).state.store(TransferState::kMatched, std::memory_order_release);
  }
}

/// The message is claimed. With the lock.
void Endpoint::leave(Receiving& receiving, RecordHeader* record, int member) {
  set_matched(record);
  receiving.record = record;
  receiving.member = member;
  looks_past_left_ = first_left_ != nullptr ? looks_past_left_ : 0;
  receiving.next = nullptr;
  receiving.previous = last_left_;
  (last_left_ != nullptr ? last_left_->next : first_left_) = &receiving;
  last_left_ = &receiving;
  receiving.is_left.store(true, std::memory_order_relaxed);
}

/// Takes it out of the list; false if another thread has. With the lock.
bool Endpoint::take_left(Receiving& receiving) {
  if (!receiving.is_left.load(std::memory_order_relaxed)) {
    return false;
  }
  (receiving.previous != nullptr ? receiving.previous->next : first_left_) = receiving.next;
  (receiving.next != nullptr ? receiving.next->previous : last_left_) = receiving.previous;
  receiving.is_left.store(false, std::memory_order_relaxed);
  return true;
}

/// Copies what was taken out of the list. Without the lock.
void Endpoint::copy_left(Receiving& receiving) {
  (void)claim(receiving.record, receiving.member);
  fetch_content(receiving.record, receiving.into, receiving.member);
  const Guard guard(*this);
  end_fetch(receiving.record, receiving.into, receiving.member);
  trace::count_alone(trace::Counter::kMessagesCopiedApart);
  receiving.complete.store(true, std::memory_order_release);  // then it is its owner's, which may make another one of it
}

/// The same for a receive of another thread's, which may have gone to sleep meanwhile.
void Endpoint::copy_for_another(Receiving& receiving) {
  copy_left(receiving);
  wake(session_->index);
}

bool Endpoint::finish(Receiving& receiving) {
  if (!receiving.is_left.load(std::memory_order_relaxed)) {
    return false;
  }
  {
    const Guard guard(*this);
    if (!take_left(receiving)) {
      return false;
    }
  }
  copy_left(receiving);
  return true;
}

/// Asked by threads that wait for something else: the receive that no thread has come for, or nullptr. With the lock.
Receiving* Endpoint::take_what_waits_long() {
  if (++looks_past_left_ < (sched::waiters_may_sleep() ? kLooksBeforeSleep : kLooksPastLeft)) {
    return nullptr;
  }
  Receiving* const left = first_left_;
  (void)take_left(*left);
  return left;
}

/// A send that would not wait, whose content is left: copied aside, and over. False if it is not left. (A synchronous one
/// waits.)
bool Endpoint::set_matched_aside(Sending& sending, bool must) {
  std::atomic<TransferState>& state = transfer_of(sending.record).state;
  TransferState matched = TransferState::kMatched;
  if (sending.synchronous || state.load(std::memory_order_relaxed) != matched ||
      !state.compare_exchange_strong(matched, TransferState::kCopyingMatched, std::memory_order_acq_rel)) {
    return false;
  }
  const sched::Uncut uncut;  // a receiver that comes for it now spins until it is copied
  state.store(set_aside(sending, must) ? TransferState::kTakenAside : TransferState::kMatched, std::memory_order_release);
  return true;
}

}  // namespace headroom::direct
