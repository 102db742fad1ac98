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

bool Endpoint::open(const node::Session& session, const int* members, int count) {
  session_ = &session;
  if (session.messages_descriptor < 0 ||
      memory_.open(session.messages_descriptor, session.index, node::kMaxMembers) != base::Status::kOk) {
    return false;
  }
  for (int index = 0; index < count; ++index) {
    if (!open_peer_memory(session, members[index])) {
      return false;
    }
  }
  open_ = true;
  return true;
}

void Endpoint::wake(int member) {
  Root& root = *memory_.root<Root>(member);
  if (sched::waiters_may_sleep()) {
    // What was published comes before the look at whether anybody sleeps; the other side does it the other way round.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  if (root.sleeping.load(std::memory_order_relaxed) != 0) {
    root.sleeping.store(0, std::memory_order_relaxed);
    root.bell.fetch_add(1, std::memory_order_release);
    base::futex_wake(&root.bell, 1 << 20, true);
    trace::count_alone(Counter::kBellsRung);
  }
}

bool Endpoint::look_for_channels() {
  const uint32_t opened = own_root().opened.load(std::memory_order_acquire);
  if (__builtin_expect(opened == known_opened_, 1)) {
    return false;
  }
  known_opened_ = opened;
  for (int member = 0; member < node::kMaxMembers; ++member) {
    if (readers_[member].is_open() || session_->ledger->members[member].pid.load(std::memory_order_relaxed) == 0) {
      continue;
    }
    const uint64_t first = memory_.root<Root>(member)->channel_to[session_->index].load(std::memory_order_acquire);
    if (first != 0) {
      readers_[member].open(memory_.base(), first);
      reading_[reading_count_++] = member;
    }
  }
  return true;
}

void Endpoint::arrived(int member, RecordHeader* record) {
  const Envelope envelope = {record->context, record->source, record->tag};
  const bool has_transfer = ChannelReader::kind_of(*record) == RecordKind::kTransfer;
  const uint64_t bytes = has_transfer ? transfer_of(record).bytes : record->bytes;
  if (auto* receiving = static_cast<Receiving*>(posted_.find(envelope))) {
    if (claim(record, member)) {
      posted_.remove(receiving);
      deliver(*receiving, record, member, bytes);
    }
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

bool Endpoint::progress_locked() {
  bool came = look_for_channels();
  for (int index = 0; index < reading_count_; ++index) {
    const int member = reading_[index];
    ChannelReader& reader = readers_[member];
    for (bool more = false; RecordHeader* record = reader.peek(); more = true) {
      reader.advance(record);
      if (more) {
        reader.prefetch();
      }
      arrived(member, record);
      came = true;
    }
  }
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
  const Guard guard(*this);
  return progress_locked();
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
  reader.advance(record);
  reader.prefetch();
  const bool has_transfer = ChannelReader::kind_of(*record) == RecordKind::kTransfer;
  const uint64_t bytes = has_transfer ? transfer_of(record).bytes : record->bytes;
  if (!claim(record, receiving.member)) {
    return false;
  }
  deliver(receiving, record, receiving.member, bytes);
  return true;
}

void Endpoint::receive(Receiving& receiving) {
  const Guard guard(*this);
  if (take_next(receiving)) {
    return;
  }
  (void)progress_locked();
  while (Message* message = find_locked(receiving.envelope)) {
    unexpected_.remove(message);
    RecordHeader* record = message->record;
    const int member = message->member;
    const uint64_t bytes = message->bytes;
    give_to(free_messages_, message);
    if (claim(record, member)) {
      deliver(receiving, record, member, bytes);
      return;
    }
  }
  posted_.append(&receiving);
}

void Endpoint::receive_message(Message* message, Receiving& receiving) {
  const Guard guard(*this);
  RecordHeader* record = message->record;
  const int member = message->member;
  const uint64_t bytes = message->bytes;
  give_to(free_messages_, message);
  deliver(receiving, record, member, bytes);
}

bool Endpoint::cancel(Receiving& receiving) {
  const Guard guard(*this);
  if (receiving.complete.load(std::memory_order_relaxed) || receiving.record != nullptr) {
    return false;
  }
  posted_.remove(&receiving);
  receiving.cancelled = true;
  receiving.complete.store(true, std::memory_order_release);
  return true;
}

EndpointFunctions endpoint_functions() {
  EndpointFunctions functions = {};
  functions.expect_threads = [] { endpoint().expect_threads(); };
  functions.send = [](int member, const Envelope& envelope, const Content& content, SendKind kind, uint64_t looks,
                      Sending*& sending) { return endpoint().send(member, envelope, content, kind, looks, sending); };
  functions.is_finished = [](Sending* sending) { return endpoint().is_finished(sending); };
  functions.copy_aside = [](Sending* sending) { endpoint().copy_aside(sending); };
  functions.cancel_send = [](Sending* sending) { return endpoint().cancel(sending); };
  functions.receive = [](Receiving& receiving) { endpoint().receive(receiving); };
  functions.receive_next = [](int member, const Envelope& wanted, const Content& into, NextMessage& got) {
    return endpoint().receive_next(member, wanted, into, got);
  };
  functions.cancel_receive = [](Receiving& receiving) { return endpoint().cancel(receiving); };
  functions.find = [](const Envelope& wanted, Found& found) { return endpoint().find(wanted, found); };
  functions.extract = [](const Envelope& wanted) { return endpoint().extract(wanted); };
  functions.receive_message = [](Message* message, Receiving& receiving) { endpoint().receive_message(message, receiving); };
  functions.progress = [] { return endpoint().progress(); };
  functions.go_away = [] { endpoint().go_away(); };
  functions.come_back = [] { endpoint().come_back(); };
  functions.is_drained = [] { return endpoint().is_drained(); };
  functions.add_run = [](LayoutBuilder& builder, int64_t offset, uint64_t bytes, uint64_t count, int64_t stride) {
    builder.add(offset, bytes, count, stride);
  };
  functions.add_layout = [](LayoutBuilder& builder, const LayoutBuilder& other, int64_t offset, uint64_t count,
                            int64_t stride) { builder.add_all(other, offset, count, stride); };
  functions.is_contiguous = [](const LayoutBuilder& builder, int64_t extent) { return builder.is_contiguous(extent); };
  functions.finish_layout = [](const LayoutBuilder& builder, int64_t extent) {
    return builder.finish(endpoint().memory(), extent);
  };
  functions.drop_builder = [](LayoutBuilder& builder) { builder.drop(); };
  functions.copy_content = [](const Content& to, const Content& from) { copy_content(to, from); };
  functions.let_go = [](Layout* layout) { let_go(layout, endpoint().memory()); };
  return functions;
}

}  // namespace headroom::direct
