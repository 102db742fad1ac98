// See matching.h.
#include "direct/matching.h"

namespace headroom::direct {

PostedQueue::PostedQueue() {
  for (unsigned open = 0; open < kIndexes; ++open) {
    indexes_[open].set_open(open);
  }
}

void PostedQueue::append(PostedReceive* receive) {
  receive->order = next_order_++;
  ++count_;
  indexes_[open_parts(receive->envelope)].append(receive);
}

PostedReceive* PostedQueue::find(const Envelope& message) {
  PostedReceive* earliest = nullptr;
  for (auto& index : indexes_) {
    PostedReceive* found = index.find(message, comparisons_);
    if (found != nullptr && (earliest == nullptr || found->order < earliest->order)) {
      earliest = found;
    }
  }
  return earliest;
}

void PostedQueue::remove(PostedReceive* receive) {
  indexes_[open_parts(receive->envelope)].remove(receive);
  --count_;
}

UnexpectedQueue::UnexpectedQueue() {
  for (unsigned open = 0; open < kIndexes; ++open) {
    indexes_[open].set_open(open);
  }
}

void UnexpectedQueue::append(UnexpectedMessage* message) {
  message->arrival = {nullptr, last_};
  (last_ != nullptr ? last_->arrival.next : first_) = message;
  last_ = message;
  for (unsigned open = 0; open < kIndexes; ++open) {
    if (built_[open]) {
      indexes_[open].append(message);
    }
  }
}

void UnexpectedQueue::build(unsigned open) {
  built_[open] = true;
  for (UnexpectedMessage* message = first_; message != nullptr; message = message->arrival.next) {
    indexes_[open].append(message);
  }
}

UnexpectedMessage* UnexpectedQueue::find(const Envelope& wanted) {
  const unsigned open = open_parts(wanted);
  if (!built_[open]) {
    build(open);
  }
  return indexes_[open].find(wanted, comparisons_);
}

void UnexpectedQueue::remove(UnexpectedMessage* message) {
  const Hook<UnexpectedMessage>& hook = message->arrival;
  (hook.previous != nullptr ? hook.previous->arrival.next : first_) = hook.next;
  (hook.next != nullptr ? hook.next->arrival.previous : last_) = hook.previous;
  for (unsigned open = 0; open < kIndexes; ++open) {
    if (built_[open]) {
      indexes_[open].remove(message);
    }
  }
}

}  // namespace headroom::direct
