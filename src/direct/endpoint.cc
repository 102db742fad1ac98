// See endpoint.h.
#include "direct/endpoint.h"

#include <cstring>

#include "direct/peer_memory.h"
#include "direct/pool.h"
#include "sched/scheduler.h"
#include "trace/counters.h"

namespace headroom::direct {

using trace::Counter;

namespace {
Endpoint the_endpoint;
}
Endpoint& endpoint() { return the_endpoint; }

bool Endpoint::open(const node::Session& session, const int* members, int count, char* mapped) {
  session_ = &session;
  if (session.messages_descriptor < 0 || memory_.open(session.messages_descriptor, session.index,
                                                      static_cast<int>(session.ledger->places), mapped) != base::Status::kOk) {
    return false;
  }
  for (int index = 0; index < count; ++index) {
    if (!open_peer_memory(session, members[index])) {
      return false;
    }
    is_peer_[members[index]] = true;
  }
  own_root().own_address.store(reinterpret_cast<uint64_t>(&own_root()), std::memory_order_relaxed);
  if (base::settings().attach != base::AttachChoice::kOff) {
    allow_attaching();
  }
  can_pass_on_ = direct::can_pass_on();
  open_ = true;
  return true;
}

Endpoint::Taken Endpoint::enter() {
  const bool away = is_away();
  if (threads_.may_be_several()) {
    return lock_.enter(threads_, !away) ? Taken::kAlone : Taken::kLocked;
  }
  if (away) {
    lock_.lock();
  }
  return away ? Taken::kLocked : Taken::kNothing;
}

void Endpoint::wake(int member) {
  Root& root = root_of(member);
  if (sched::waiters_may_sleep()) {
    // The record is published before the look at whether anybody sleeps; the other side does it the other way round.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  if (root.sleeping.load(std::memory_order_relaxed) != 0) {
    root.sleeping.store(0, std::memory_order_relaxed);
    root.bell.fetch_add(1, std::memory_order_release);
    base::futex_wake(&root.bell, 1 << 20, true);
    trace::count(Counter::kBellsRung);
  }
}

bool Endpoint::look_for_channels() {
  const uint32_t opened = own_root().opened.load(std::memory_order_acquire);
  if (__builtin_expect(opened == known_opened_, 1)) {
    return false;
  }
  known_opened_ = opened;
  own_root().opened_by.take_each([this](int member) {
    if (readers_[member].is_open()) {
      return;  // of the rank that had that place before
    }
    try_attaching(member);
    readers_[member].open(memory_.base(), root_of(member).channel_to[session_->index].load(std::memory_order_relaxed));
    reading_[reading_count_++] = member;
  });
  return true;
}

void Endpoint::try_attaching(int member) {
  const base::AttachChoice wanted = base::settings().attach;
  const uint64_t address = root_of(member).own_address.load(std::memory_order_relaxed);
  const int pid = pid_of(member);
  const bool can = wanted != base::AttachChoice::kOff && member != session_->index &&
                   can_attach(pid, reinterpret_cast<const void*>(address + offsetof(Root, own_address)), address);
  if (!can && wanted == base::AttachChoice::kOn && member != session_->index) {
    base::die(
        "--attach on: memory of rank %d (process %d) cannot be read by process_vm_readv; is it forbidden by a container, a "
        "security module, or /proc/sys/kernel/yama/ptrace_scope?",
        session_->ledger->members[member].rank.load(std::memory_order_relaxed), pid);
  }
  own_root().attaches_to[member].store(can, std::memory_order_release);
}

void Endpoint::report_lost(int member) {
  const node::Member& lost = session_->ledger->members[member];
  base::die(
      "memory of rank %d (process %d) cannot be reached any more while it is copied: has it ended, or lost the right to it?",
      lost.rank.load(std::memory_order_relaxed), lost.pid.load(std::memory_order_relaxed));
}

void Endpoint::look_after_peers() {
  ring_away();
  end_if_peers_are_lost();
}

void Endpoint::end_if_peers_are_lost() {
  if (!node::outlived_loss(*session_)) {
    return;
  }
  for (int next = 0; const node::Member& member : session_->ledger->used_members()) {
    const int index = next++;
    if (is_peer_[index] && node::is_missed(member)) {
      base::die("rank %d (process %d) has ended without leaving MPI, and a message that this rank waits for may never come",
                member.rank.load(std::memory_order_relaxed), member.pid.load(std::memory_order_relaxed));
    }
  }
}

/// Gives a message to the receive that it belongs to; false if there is none yet.
bool Endpoint::hand_over(const Envelope& envelope, RecordHeader* record, int member, uint64_t bytes) {
  ++asked_about_;
  while (auto* receiving = static_cast<Receiving*>(posted_.find(envelope))) {
    if (helping_ && (unasked_ || receiving->claim_message != nullptr)) {  // later messages must not overtake those left
      acknowledge(record, member);
      unasked_ = true;
      return false;
    }
    if (!claim(record, member)) {
      return true;  // it is gone
    }
    unpost(*receiving);
    if (receiving->claim_message == nullptr || receiving->claim_message(receiving->owner, envelope.tag, asked_about_)) {
      deliver(*receiving, record, member, bytes);
      return true;
    }
    receiving->withdrawn = true;
    unclaim(record);
  }
  return false;
}

/// Hands over the messages that the helper had to leave, in the order in which they came.
void Endpoint::ask_what_was_not_asked() {
  unasked_ = false;
  for (auto* message = static_cast<Message*>(unexpected_.first()); message != nullptr;) {
    auto* const next = static_cast<Message*>(message->arrival.next);
    if (hand_over(message->envelope, message->record, message->member, message->bytes)) {
      unexpected_.remove(message);
      give_to(free_messages_, message);
    }
    message = next;
  }
}

void Endpoint::arrived(int member, RecordHeader* record) {
  const Envelope envelope = {record->context, record->source, record->tag};
  const bool has_transfer = ChannelReader::kind_of(*record) == RecordKind::kTransfer;
  const uint64_t bytes = has_transfer ? transfer_of(record).bytes : record->bytes;
  if (hand_over(envelope, record, member, bytes)) {
    return;
  }
  Message* message = take_from(free_messages_);
  message->envelope = envelope;
  message->record = record;
  message->member = member;
  message->bytes = bytes;
  unexpected_.append(message);
  trace::count_alone(Counter::kMessagesUnexpected);
  trace::count_peak(Counter::kMessagesUnexpectedPeak, unexpected_.count());
}

bool Endpoint::progress_locked(uint32_t most_records) {
  if (__builtin_expect(unasked_, 0) && !helping_) {
    ask_what_was_not_asked();
  }
  bool came = __builtin_expect(between_.on, 0) && move_between_nodes(false);
  came = look_for_channels() || came;
  bool leaves_records = false;
  for (int index = 0; index < reading_count_; ++index) {
    const int member = reading_[index];
    ChannelReader& reader = readers_[member];
    uint32_t taken = 0;
    for (RecordHeader* record = nullptr; taken < most_records && (record = reader.peek()) != nullptr; ++taken) {
      advance(reader, member, record);
      arrived(member, record);
    }
    came = came || taken != 0;
    leaves_records = leaves_records || taken == most_records;
  }
  has_left_records_.store(leaves_records, std::memory_order_relaxed);
  for (Sending* sending = streams_out_; sending != nullptr; sending = sending->next) {
    came = move_stream(*sending) || came;
  }
  for (Receiving** link = &streams_in_; *link != nullptr;) {
    Receiving& receiving = **link;
    came = move_stream(receiving) || came;
    if (receiving.record == nullptr) {
      *link = receiving.next;
      receiving.complete.store(true, std::memory_order_release);
    } else {
      link = &receiving.next;
    }
  }
  if (!left_.is_empty()) {
    reap();
  }
  return came;
}

bool Endpoint::progress() {
  bool came = false;
  Receiving* left = nullptr;
  {
    const Guard guard(*this);
    came = progress_locked();
    left = __builtin_expect(first_left_ != nullptr, 0) ? take_what_waits_long() : nullptr;
  }
  if (left != nullptr) {
    copy_for_another(*left);
  }
  return came;
}

}  // namespace headroom::direct
