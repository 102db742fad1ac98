// See announced_record.h.
#include "rpipe/announced_record.h"

#include <algorithm>
#include <cstring>

#include "rpipe/peers.h"

namespace headroom::rpipe {

int AnnouncedRecord::send_open(Messenger& messenger, uint16_t life) {
  Frame frame = frame_of(FrameKind::kOpen, life, record_->index);
  frame.open = {record_->key.load(std::memory_order_relaxed), record_->role, record_->flags, record_->width};
  const int error = messenger.send(rank_, frame, nullptr);
  has_told_open_ = error == 0;
  return error;
}

/// The line of the next notice, if it was written.
const Line* AnnouncedRecord::next_line() const {
  const Line& line = lines_[(next_number_ - first_number_) & (line_count_ - 1)];
  // acquire: pairs with Writer::write().
  return line.number.load(std::memory_order_acquire) == stamp_of(next_number_) ? &line : nullptr;
}

int AnnouncedRecord::send_notice(Messenger& messenger, uint16_t life, const Line& line) {
  Frame frame = frame_of(FrameKind::kNotice, life, record_->index);
  frame.notice.number = next_number_;
  frame.notice.kind = static_cast<uint8_t>(line.kind);
  frame.notice.buffer = line.buffer;
  frame.notice.generation = line.generation;
  const char* content = nullptr;
  switch (line.kind) {
    case Notice::kInline:
      frame.content = line.inline_bytes;
      content = line.content;
      break;
    case Notice::kHeap:
      frame.notice.heap_limit = record_->heap_limit.load(std::memory_order_relaxed);
      frame.notice.place = line.heap.offset;
      frame.content = line.heap.bytes;
      if (heap_ == nullptr) {
        heap_ = own_memory().at(record_->heap.load(std::memory_order_relaxed), frame.notice.heap_limit);
      }
      content = heap_ + line.heap.offset;
      break;
    case Notice::kNextRing:
      frame.notice.place = line.ring.lines;
      break;
  }
  return messenger.send(rank_, frame, content);
}

int AnnouncedRecord::forward(Messenger& messenger, uint16_t life) {
  int error = has_told_open_ ? 0 : send_open(messenger, life);
  while (const Line* const line = error == 0 ? next_line() : nullptr) {
    error = send_notice(messenger, life, *line);
    if (error != 0) {
      break;
    }
    ++next_number_;
    if (line->kind == Notice::kNextRing) {
      lines_ = reinterpret_cast<const Line*>(own_memory().at(line->ring.offset, line->ring.lines * sizeof(Line)));
      line_count_ = static_cast<uint32_t>(line->ring.lines);
      first_number_ = next_number_;
    }
  }
  const bool is_closed = record_->state.load(std::memory_order_acquire) == static_cast<uint32_t>(EndState::kClosed);
  if (error == 0 && is_closed && !has_told_closed_) {
    error = messenger.send(rank_, frame_of(FrameKind::kState, life, record_->index), nullptr);
    has_told_closed_ = error == 0;
  }
  return error;
}

void AnnouncedRecord::put_back(const Frame& frame, const char* freed) {
  const uint64_t marks = record_->more_marks.load(std::memory_order_relaxed);
  char* const more = marks == 0 ? nullptr : own_memory().at(marks, kMostBuffers);
  auto* const more_marks = reinterpret_cast<std::atomic<uint8_t>*>(more);
  for (uint64_t at = 0; at + sizeof(uint16_t) <= frame.content; at += sizeof(uint16_t)) {
    uint16_t buffer = 0;
    memcpy(&buffer, freed + at, sizeof buffer);
    // release, as in Reader::release(): the reader's use of the buffer comes before the writer's.
    if (buffer < kFirstMarks) {
      record_->marks[buffer].store(1, std::memory_order_release);
    } else if (more_marks != nullptr && buffer < kMostBuffers) {
      more_marks[buffer].store(1, std::memory_order_release);
    }
  }
  record_->taken.store(std::max(frame.back.taken, record_->taken.load(std::memory_order_relaxed)), std::memory_order_release);
  if (frame.back.is_closed != 0) {
    record_->peer_closed.store(1, std::memory_order_release);
  }
}

}  // namespace headroom::rpipe
