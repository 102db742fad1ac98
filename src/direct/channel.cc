// See channel.h.
#include "direct/channel.h"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace headroom::direct {

bool can_pass_on() {
#if defined(__x86_64__)
  constexpr unsigned kCldemote = 1U << 25;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (c & kCldemote) != 0;
#else
  return false;
#endif
}

bool ChannelWriter::open(MessageMemory& memory) {
  memory_ = &memory;
  chunk_ = make_chunk();
  if (chunk_ == nullptr) {
    return false;
  }
  first_chunk_ = memory.offset_of(chunk_);
  header_at(half_)->word.store(0, std::memory_order_relaxed);
  return true;
}

ChunkHead* ChannelWriter::make_chunk() {
  auto* head = static_cast<ChunkHead*>(memory_->allocate(kChunkBytes));
  if (head != nullptr) {
    head->free_again.store(0, std::memory_order_relaxed);
    head->reader_keeps = 0;
    head->reader_passed = 0;
    head->writer_keeps = 0;
    head->writer_next = nullptr;
    ++chunk_count_;
  }
  return head;
}

/// A chunk to fill: one that is free again, or a fresh one.
ChunkHead* ChannelWriter::take_chunk() {
  // Chunks come back in any order, but the oldest is the likeliest. One that is still in use goes to the end: a message that
  // nobody receives must not keep those behind it from being used again.
  constexpr int kLooks = 4;
  for (int look = 0; look < kLooks && oldest_filled_ != nullptr; ++look) {
    ChunkHead* const head = oldest_filled_;
    const bool is_free = head->free_again.load(std::memory_order_acquire) != 0 && head->writer_keeps == 0;
    oldest_filled_ = head->writer_next;
    head->writer_next = nullptr;
    if (is_free) {
      head->free_again.store(0, std::memory_order_relaxed);
      return head;
    }
    (oldest_filled_ != nullptr ? latest_filled_->writer_next : oldest_filled_) = head;
    latest_filled_ = head;
  }
  return make_chunk();
}

bool ChannelWriter::next_chunk() {
  ChunkHead* const next = take_chunk();
  if (next == nullptr) {
    return false;
  }
  RecordHeader* const end = header_at(half_);
  const uint64_t offset = memory_->offset_of(next);
  (oldest_filled_ != nullptr ? latest_filled_->writer_next : oldest_filled_) = chunk_;
  latest_filled_ = chunk_;
  chunk_ = next;
  half_ = kFirstHalf;
  owned_to_ = kFirstHalf;
  header_at(half_)->word.store(0, std::memory_order_relaxed);
  end->bytes = sizeof offset;
  memcpy(end->payload(), &offset, sizeof offset);
  // release: the next chunk's first word is cleared before the reader goes there.
  end->word.store(static_cast<uint32_t>(RecordKind::kNextChunk) | 1 << 8, std::memory_order_release);
  return true;
}

RecordHeader* ChannelReader::follow(RecordHeader* record) {
  if (kind_of(*record) == RecordKind::kSkip) {
    half_ += record->word.load(std::memory_order_relaxed) >> 8;
    return peek();
  }
  uint64_t offset = 0;
  memcpy(&offset, record->payload(), sizeof offset);
  ChunkHead* const head = chunk_of(record);
  chunk_ = base_ + offset;
  half_ = kFirstHalf;
  head->reader_passed = 1;
  if (head->reader_keeps == 0) {
    free_chunk(head);
  }
  return peek();
}

}  // namespace headroom::direct
