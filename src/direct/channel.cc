// See channel.h.
#include "direct/channel.h"

#include <cstring>

namespace headroom::direct {

bool ChannelWriter::open(MessageMemory& memory) {
  memory_ = &memory;
  chunk_ = take_chunk();
  if (chunk_ == nullptr) {
    return false;
  }
  oldest_ = chunk_;
  first_chunk_ = memory.offset_of(chunk_);
  header_at(line_)->word.store(0, std::memory_order_relaxed);
  return true;
}

ChunkHead* ChannelWriter::take_chunk() {
  auto* head = static_cast<ChunkHead*>(memory_->allocate(kChunkBytes));
  if (head != nullptr) {
    head->free_again.store(0, std::memory_order_relaxed);
    head->reader_keeps = 0;
    head->reader_passed = 0;
    head->writer_next = nullptr;
    ++chunk_count_;
  }
  return head;
}

bool ChannelWriter::next_chunk() {
  // Chunks come back in any order, but the oldest is the likeliest; looking at one keeps this short.
  ChunkHead* next = nullptr;
  if (oldest_ != chunk_ && oldest_->free_again.load(std::memory_order_acquire) != 0) {
    next = oldest_;
    oldest_ = oldest_->writer_next;
    next->free_again.store(0, std::memory_order_relaxed);
    next->writer_next = nullptr;
  } else {
    next = take_chunk();
    if (next == nullptr) {
      return false;
    }
  }
  RecordHeader* const end = header_at(line_);
  const uint64_t offset = memory_->offset_of(next);
  chunk_->writer_next = next;
  chunk_ = next;
  line_ = 1;
  header_at(line_)->word.store(0, std::memory_order_relaxed);
  end->bytes = sizeof offset;
  memcpy(end->payload(), &offset, sizeof offset);
  // release: the next chunk's first word is cleared before the reader goes there.
  end->word.store(static_cast<uint32_t>(RecordKind::kNextChunk) | 1 << 8, std::memory_order_release);
  return true;
}

RecordHeader* ChannelReader::follow(RecordHeader* record) {
  uint64_t offset = 0;
  memcpy(&offset, record->payload(), sizeof offset);
  ChunkHead* const head = head_of(record);
  chunk_ = base_ + offset;
  line_ = 1;
  head->reader_passed = 1;
  if (head->reader_keeps == 0) {
    free_chunk(head);
  }
  return peek();
}

}  // namespace headroom::direct
