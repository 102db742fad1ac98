// While this process is in a blocking call of the MPI library, node-mates may need it: a synchronous send to a receive that is
// posted here must end (it may be all that keeps the others from that same call), and so must a long message that goes through
// a ring. Its own thread cannot do that, so a thread of Headroom's does, for as long as the call lasts and only when it is rung
// by a rank that has waited a while. Outside such calls it touches nothing.
#include "base/own_threads.h"
#include "direct/endpoint.h"
#include "trace/counters.h"

namespace headroom::direct {

void Endpoint::go_away() {
  if (!threads_.may_be_several() && posted_.count() == 0 && streams_in_ == nullptr && streams_out_ == nullptr) {
    return;
  }
  if (!has_helper_.exchange(true) && !base::start_thread("headroom-away", help, this)) {
    has_helper_.store(false);
    return;
  }
  const Guard guard(*this);  // from now on the helper may be at work
  own_root().away.fetch_add(1, std::memory_order_release);
}

void Endpoint::come_back() {
  if (!is_away()) {
    return;
  }
  // With the lock: the helper is not at work, and does not begin unless other threads of this process are away.
  const Guard guard(*this);
  own_root().away.fetch_sub(1, std::memory_order_release);
}

void Endpoint::ring_away() {
  for (int index = 0; index < reading_count_ + writing_count_; ++index) {
    const int member = index < reading_count_ ? reading_[index] : writing_[index - reading_count_];
    Root& root = root_of(member);
    if (member != session_->index && root.away.load(std::memory_order_relaxed) != 0 &&
        root.away_bell.exchange(1, std::memory_order_acq_rel) == 0) {
      base::futex_wake(&root.away_bell, 1, true);
    }
  }
}

/// A message for a receive that the program's thread must be asked about: its sender need not wait for that.
void Endpoint::acknowledge(RecordHeader* record, int member) {
  if (ChannelReader::kind_of(*record) != RecordKind::kTransfer || member == session_->index) {
    return;
  }
  Transfer& transfer = transfer_of(record);
  TransferState aside = TransferState::kAside;
  if (!transfer.state.compare_exchange_strong(aside, TransferState::kAcknowledged, std::memory_order_acq_rel)) {
    TransferState offered = TransferState::kOffered;
    void* piece = memory_.allocate(transfer.bytes);
    if (piece == nullptr) {
      return;
    }
    if (!transfer.state.compare_exchange_strong(offered, TransferState::kTaken, std::memory_order_acq_rel)) {
      memory_.release(piece, transfer.bytes);
      return;
    }
    const Way way = transfer.attached != 0 ? Way{Reach::kFromOther, pid_of(member)} : Way{};
    Walk from({transfer.address, transfer.bytes, transfer.layout != 0 ? memory_.at<Layout>(transfer.layout) : nullptr});
    Walk into({static_cast<char*>(piece), transfer.bytes, nullptr});
    if (!copy(into, from, transfer.bytes, way)) {
      report_lost(member);
    }
    // Whatever the budget: nobody may hang.
    node::take_for_message(*session_->ledger, *session_->self, static_cast<int64_t>(transfer.bytes));
    transfer.aside = memory_.offset_of(piece);
    trace::count_alone(trace::Counter::kMessagesAside);
    trace::count_alone(trace::Counter::kMessagesAsideBytes, transfer.bytes);
    transfer.state.store(TransferState::kAcknowledged, std::memory_order_release);
  }
  wake(member);
}

/// Those that could not be acknowledged when they came.
void Endpoint::acknowledge_all() {
  auto* message = static_cast<Message*>(unasked_ ? unexpected_.first() : nullptr);
  for (; message != nullptr; message = static_cast<Message*>(message->arrival.next)) {
    if (posted_.find(message->envelope) != nullptr) {
      acknowledge(message->record, message->member);
    }
  }
}

void* Endpoint::help(void* endpoint) {
  auto& self = *static_cast<Endpoint*>(endpoint);
  Root& root = self.own_root();
  for (;;) {
    while (root.away_bell.exchange(0, std::memory_order_acq_rel) == 0) {
      base::futex_wait(&root.away_bell, 0, -1, true);
    }
    self.lock_.lock();
    // acquire: pairs with go_away(), so the work that the program's thread has done before is seen, though it took no lock.
    if (root.away.load(std::memory_order_acquire) != 0) {
      trace::count(trace::Counter::kHelpedWhileAway);
      self.helping_ = true;
      (void)self.progress_locked(UINT32_MAX);  // it is not rung again for the rest
      self.acknowledge_all();
      self.helping_ = false;
      while (Receiving* left = self.first_left_) {
        (void)self.take_left(*left);
        self.lock_.unlock();
        self.copy_for_another(*left);
        self.lock_.lock();
      }
    }
    self.lock_.unlock();
  }
  return nullptr;
}

}  // namespace headroom::direct
