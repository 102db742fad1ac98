// Receives and probes: matched with a message that is there, or posted for one that comes; see endpoint.h. What comes is handed
// to posted receives in endpoint.cc.
#include "direct/endpoint.h"
#include "direct/pool.h"

namespace headroom::direct {

void Endpoint::count_asking(const Receiving& receiving, int change) {
  if (__builtin_expect(receiving.claim_message != nullptr, 0)) {
    asking_ += change;
    own_root().asks_later.store(asking_ > 0, std::memory_order_relaxed);
  }
}

void Endpoint::unpost(Receiving& receiving) {
  posted_.remove(&receiving);
  between_.expected -= is_on_other_node(receiving.member) ? 1 : 0;
  count_asking(receiving, -1);
}

void Endpoint::drop(Message* message) {
  unexpected_.remove(message);
  ChannelReader::give_back(message->record);
  give_to(free_messages_, message);
}

/// The message that fits, passing over those that were taken back by their senders.
Message* Endpoint::find_locked(const Envelope& wanted) {
  for (;;) {
    auto* message = static_cast<Message*>(unexpected_.find(wanted));
    if (message == nullptr || ChannelReader::kind_of(*message->record) != RecordKind::kTransfer) {
      return message;
    }
    Transfer& transfer = transfer_of(message->record);
    if (transfer.state.load(std::memory_order_acquire) != TransferState::kCancelled) {
      return message;
    }
    transfer.state.store(TransferState::kDone, std::memory_order_release);
    drop(message);
  }
}

bool Endpoint::find(const Envelope& wanted, Found& found) {
  const Guard guard(*this);
  if (__builtin_expect(between_.on, 0) && move_between_nodes(true)) {
    (void)progress_locked();
  }
  const Message* message = find_locked(wanted);
  if (message != nullptr) {
    found = {message->envelope, message->bytes};
  }
  return message != nullptr;
}

Message* Endpoint::extract(const Envelope& wanted) {
  const Guard guard(*this);
  while (Message* message = find_locked(wanted)) {
    unexpected_.remove(message);
    if (claim(message->record, message->member)) {
      set_matched(message->record);  // it may be long until it is received: its sender does not wait for that
      return message;
    }
    give_to(free_messages_, message);
  }
  return nullptr;
}

/// Gives `receiving` the next message in its sender's channel if that is the one, so that it passes through no queue.
bool Endpoint::take_next(Receiving& receiving) {
  if (receiving.member < 0 || posted_.count() != 0 || unexpected_.count() != 0 || !readers_[receiving.member].is_open()) {
    return false;
  }
  ChannelReader& reader = readers_[receiving.member];
  RecordHeader* record = reader.peek();
  const Envelope& wanted = receiving.envelope;
  if (record == nullptr || record->context != wanted.context || record->source != wanted.source ||
      (record->tag != wanted.tag && wanted.tag != kAny)) {
    return false;
  }
  advance(reader, receiving.member, record);
  const bool has_transfer = ChannelReader::kind_of(*record) == RecordKind::kTransfer;
  const uint64_t bytes = has_transfer ? transfer_of(record).bytes : record->bytes;
  if (!claim(record, receiving.member)) {
    return false;
  }
  deliver(receiving, record, receiving.member, bytes);
  return true;
}

/// Gives `receiving` a message that is there. It waits nowhere else yet, so it is not asked.
bool Endpoint::take_waiting(Receiving& receiving, bool looks) {
  if (take_next(receiving)) {
    return true;
  }
  // Messages that the helper had to leave are asked about first: they belong to receives that were posted before.
  if (looks || unasked_) {
    (void)progress_locked();
  }
  while (Message* message = find_locked(receiving.envelope)) {
    RecordHeader* record = message->record;
    const int member = message->member;
    const uint64_t bytes = message->bytes;
    const bool claimed = claim(record, member);
    unexpected_.remove(message);
    give_to(free_messages_, message);
    if (claimed) {
      deliver(receiving, record, member, bytes);
      return true;
    }
  }
  return false;
}

void Endpoint::post(Receiving& receiving) {
  posted_.append(&receiving);
  between_.expected += is_on_other_node(receiving.member) ? 1 : 0;
  count_asking(receiving, 1);
}

void Endpoint::receive(Receiving& receiving) {
  {
    const Guard guard(*this);
    // Where others are posted the program is about to wait for many. Looking at the channels takes the lines that come next
    // from the ranks that are writing them, and a receive need not: the rank does when it waits.
    if (!take_waiting(receiving, posted_.count() == 0)) {
      post(receiving);
      return;
    }
  }
  (void)finish(receiving);
}

bool Endpoint::receive_elsewhere_too(Receiving& receiving) {
  {
    const Guard guard(*this);
    if (!take_waiting(receiving, true)) {
      if (!receiving.begin_elsewhere(receiving.owner)) {
        return false;
      }
      post(receiving);
      return true;
    }
  }
  (void)finish(receiving);
  return true;
}

void Endpoint::begin_elsewhere_again(Receiving& receiving) {
  const Guard guard(*this);
  if (has_message(receiving) || !receiving.begin_elsewhere(receiving.owner)) {
    return;
  }
  if (!receiving.withdrawn) {
    unpost(receiving);
  }
  receiving.withdrawn = false;
  post(receiving);
}

bool Endpoint::has_message(const Receiving& receiving) {
  return receiving.complete.load(std::memory_order_relaxed) || receiving.record != nullptr;
}

/// False if it has a message.
bool Endpoint::take_out_of_queue(Receiving& receiving) {
  if (has_message(receiving)) {
    return false;
  }
  if (!receiving.withdrawn) {
    unpost(receiving);
    receiving.withdrawn = true;
  }
  return true;
}

bool Endpoint::withdraw(Receiving& receiving) {
  const Guard guard(*this);
  return take_out_of_queue(receiving);
}

void Endpoint::receive_message(Message* message, Receiving& receiving) {
  {
    const Guard guard(*this);
    RecordHeader* record = message->record;
    const int member = message->member;
    const uint64_t bytes = message->bytes;
    give_to(free_messages_, message);
    (void)claim(record, member);  // nobody can have taken it back
    deliver(receiving, record, member, bytes);
  }
  (void)finish(receiving);
}

bool Endpoint::cancel(Receiving& receiving) {
  const Guard guard(*this);
  if (!take_out_of_queue(receiving)) {
    return false;
  }
  receiving.cancelled = true;
  receiving.complete.store(true, std::memory_order_release);
  return true;
}

}  // namespace headroom::direct
