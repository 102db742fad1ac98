// The receiver's side; see endpoint.h and transfer.h.
#include <sched.h>

#include <cstring>

#include "direct/copy.h"
#include "direct/endpoint.h"
#include "pager/pager.h"
#include "trace/counters.h"

namespace headroom::direct {
namespace {

using trace::Counter;

constexpr uint64_t kPrefetchBytes = 1024;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Spins until `done`; the other side is at work, unless it has no processor.
template <typename Done>
void wait_for_other_side(Done done) {
  constexpr int kSpins = 1000;
  for (int round = 0; !done(); ++round) {
    if (round < kSpins) {
      relax();
    } else {
      (void)sched_yield();
    }
  }
}

Transfer& transfer_of(MessageMemory& memory, RecordHeader* record) {
  TransferNote note;
  memcpy(&note, record->payload(), sizeof note);
  return *memory.at<Transfer>(note.transfer);
}

}  // namespace

/// Makes the message this process's to receive; false if its sender has taken it back: then it is gone.
bool Endpoint::claim(RecordHeader* record, int member) {
  if (ChannelReader::kind_of(*record) != RecordKind::kTransfer) {
    return true;
  }
  TransferNote note;
  memcpy(&note, record->payload(), sizeof note);
  Transfer& transfer = *memory_.at<Transfer>(note.transfer);
  for (uint64_t ahead = 0; note.address != nullptr && ahead < note.bytes && ahead < kPrefetchBytes; ahead += kLineBytes) {
    __builtin_prefetch(note.address + ahead, 0);
  }
  TransferState state = note.address != nullptr ? TransferState::kOffered : transfer.state.load(std::memory_order_acquire);
  for (;;) {
    switch (state) {
      case TransferState::kOffered:
      case TransferState::kAside: {
        const bool aside = state == TransferState::kAside;
        if (transfer.state.compare_exchange_weak(state, aside ? TransferState::kTakenAside : TransferState::kTaken,
                                                 std::memory_order_acq_rel)) {
          return true;
        }
        break;
      }
      case TransferState::kCopyingAside:
        wait_for_other_side(
            [&] { return (state = transfer.state.load(std::memory_order_acquire)) != TransferState::kCopyingAside; });
        break;
      case TransferState::kCancelled:
        transfer.state.store(TransferState::kDone, std::memory_order_release);
        ChannelReader::give_back(record);
        wake(member);
        return false;
      default:
        return true;
    }
  }
}

bool Endpoint::fetch_together(Receiving& receiving, Transfer& transfer, const Content& from, const Content& to) {
  const Span span = span_of(to);
  uint64_t offset = 0;
  if (to.bytes < kSharedFrom || (pager::is_armed() && span.bytes > pager::largest_hold()) ||
      !pager::hold_for_peer(span.begin, span.bytes, true, offset)) {
    return false;
  }
  transfer.target =
      reinterpret_cast<char*>(arena::partition_base(session_->index) + offset) + (receiving.into.address - span.begin);
  transfer.target_layout = to.layout != nullptr ? memory_.offset_of(to.layout) : 0;
  transfer.copied_bytes = to.bytes;
  transfer.pieces = (to.bytes + kPieceBytes - 1) / kPieceBytes;
  transfer.next_piece.store(0, std::memory_order_relaxed);
  transfer.done_pieces.store(0, std::memory_order_relaxed);
  transfer.shared.store(1, std::memory_order_release);
  const uint64_t pieces = transfer.pieces;
  if (!copy_pieces(transfer, from, to)) {
    wait_for_other_side([&] { return transfer.done_pieces.load(std::memory_order_acquire) == pieces; });
  }
  pager::drop_hold(span.begin, span.bytes, true);
  trace::count_alone(Counter::kMessagesShared);
  return true;
}

/// Copies the content of a transfer that is ours, or begins to.
void Endpoint::fetch(Receiving& receiving, Transfer& transfer, int member) {
  const uint64_t bytes = transfer.bytes < receiving.into.bytes ? transfer.bytes : receiving.into.bytes;
  const TransferState state = transfer.state.load(std::memory_order_acquire);
  if (state == TransferState::kStreaming) {
    receiving.transfer = &transfer;
    receiving.member = member;
    receiving.streamed = 0;
    receiving.next = streams_in_;
    streams_in_ = &receiving;
    return;
  }
  const bool aside = state == TransferState::kAside || state == TransferState::kTakenAside;
  const Content from = {aside ? memory_.at<char>(transfer.aside) : transfer.address, bytes,
                        aside || transfer.layout == 0 ? nullptr : memory_.at<Layout>(transfer.layout)};
  const Content to = {receiving.into.address, bytes, receiving.into.layout};
  if (aside || !fetch_together(receiving, transfer, from, to)) {
    Walk reader(from);
    Walk writer(to);
    copy(writer, reader, bytes);
  }
  if (!aside) {
    trace::count_alone(Counter::kMessagesFetched);
    trace::count_alone(Counter::kMessagesFetchedBytes, bytes);
  }
  // release: the sender may write its memory again when it sees this.
  transfer.state.store(TransferState::kDone, std::memory_order_release);
  wake(member);
  receiving.complete.store(true, std::memory_order_release);
}

/// Gives `receiving` the message of `record`, which is claimed.
void Endpoint::deliver(Receiving& receiving, RecordHeader* record, int member, uint64_t bytes) {
  receiving.source = record->source;
  receiving.tag = record->tag;
  receiving.bytes = bytes;
  receiving.truncated = bytes > receiving.into.bytes;
  if (ChannelReader::kind_of(*record) == RecordKind::kTransfer) {
    Transfer& transfer = transfer_of(memory_, record);
    ChannelReader::give_back(record);
    fetch(receiving, transfer, member);
    return;
  }
  const uint64_t copied = bytes < receiving.into.bytes ? bytes : receiving.into.bytes;
  if (receiving.into.layout == nullptr) {
    copy_short(receiving.into.address, record->payload(), copied);
  } else {
    Walk from({record->payload(), copied, nullptr});
    Walk into({receiving.into.address, copied, receiving.into.layout});
    copy(into, from, copied);
  }
  ChannelReader::give_back(record);
  receiving.complete.store(true, std::memory_order_release);
}

/// Looks for a short message where it is most likely: next in the channel from `member`, asked for by nobody else.
bool Endpoint::receive_short(int member, const Envelope& wanted, char* address, uint64_t capacity, ShortMessage& got) {
  constexpr int kLooks = 400;
  if (threads_ || is_away() || posted_.count() != 0 || unexpected_.count() != 0) {
    return false;
  }
  ChannelReader& reader = readers_[member];
  if (!reader.is_open()) {
    return false;
  }
  for (int look = 0; look < kLooks; ++look) {
    RecordHeader* record = reader.peek();
    if (record == nullptr) {
      continue;
    }
    if (record->context != wanted.context || record->source != wanted.source ||
        (record->tag != wanted.tag && wanted.tag != kAny) || record->bytes > capacity ||
        ChannelReader::kind_of(*record) != RecordKind::kPayload) {
      return false;
    }
    reader.advance(record);
    got = {record->bytes, record->tag};
    copy_short(address, record->payload(), record->bytes);
    ChannelReader::give_back(record);
    return true;
  }
  return false;
}

/// Takes what the ring has. `receiving.transfer` is nullptr once all has come.
bool Endpoint::move_stream(Receiving& receiving) {
  Transfer& transfer = *receiving.transfer;
  const uint64_t written = transfer.written.load(std::memory_order_acquire);
  if (receiving.streamed == written) {
    return false;
  }
  while (receiving.streamed < written) {
    const uint64_t in_ring = receiving.streamed % transfer.aside_bytes;
    uint64_t step = written - receiving.streamed;
    step = step < transfer.aside_bytes - in_ring ? step : transfer.aside_bytes - in_ring;
    const uint64_t room = receiving.into.bytes > receiving.streamed ? receiving.into.bytes - receiving.streamed : 0;
    const uint64_t kept = step < room ? step : room;
    if (kept > 0) {
      Walk from({memory_.at<char>(transfer.aside + in_ring), kept, nullptr});
      Walk into({receiving.into.address, receiving.streamed + kept, receiving.into.layout});
      into.skip(receiving.streamed);
      copy(into, from, kept);
    }
    receiving.streamed += step;
  }
  transfer.consumed.store(receiving.streamed, std::memory_order_release);
  if (receiving.streamed == transfer.bytes) {
    transfer.state.store(TransferState::kDone, std::memory_order_release);
    receiving.transfer = nullptr;
  }
  wake(receiving.member);
  return true;
}

}  // namespace headroom::direct
