// See reader.h.
#include "rpipe/reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rpipe/order_through_peer.h"

namespace headroom::rpipe {

Reader::~Reader() {
  base::give_back_memory(buffers_, kMostBuffers * sizeof(Buffer));
  base::give_back_memory(small_, kMostBuffers * sizeof(Line));
}

void Reader::open(PeerMemory& memory, Record& record) {
  memory_ = &memory;
  record_ = &record;
  lines_ = record.lines;
  line_count_ = kFirstLines;
}

void Reader::close() {
  if (memory_ == nullptr) {
    return;
  }
  if (ring_.lines != 0) {
    memory_->forget(ring_.offset, ring_.lines * sizeof(Line));
  }
  if (more_marks_ != nullptr) {
    memory_->forget(record_->more_marks.load(std::memory_order_relaxed), kMostBuffers);
  }
  if (heap_ != nullptr) {
    memory_->forget(record_->heap.load(std::memory_order_relaxed), heap_limit_);
  }
}

bool Reader::make_tables() {
  if (buffers_ == nullptr) {
    buffers_ = static_cast<Buffer*>(base::reserve_memory(kMostBuffers * sizeof(Buffer)));
  }
  if (small_ == nullptr) {
    small_ = static_cast<char*>(base::reserve_memory(kMostBuffers * sizeof(Line)));
  }
  return buffers_ != nullptr && small_ != nullptr;
}

std::atomic<uint8_t>& Reader::mark(uint32_t number) {
  return number < kFirstMarks ? record_->marks[number] : more_marks_[number];
}

/// Goes on in the ring that a notice named; the notice itself goes with the ring that it stands in.
int Reader::follow(RingPlace place) {
  if (place.lines == 0 || (place.lines & (place.lines - 1)) != 0 || place.lines > kMostBuffers + 1) {
    return -EPROTO;
  }
  char* const at = memory_->at(place.offset, place.lines * sizeof(Line));
  if (at == nullptr) {
    return -ENOMEM;
  }
  if (ring_.lines != 0) {
    memory_->forget(ring_.offset, ring_.lines * sizeof(Line));
  }
  ring_ = place;
  lines_ = reinterpret_cast<Line*>(at);
  line_count_ = static_cast<uint32_t>(place.lines);
  record_->taken.store(next_number_, std::memory_order_release);
  ++next_number_;
  first_number_ = next_number_;
  return 0;
}

Line* Reader::next_notice() {
  Line& line = lines_[(next_number_ - first_number_) & (line_count_ - 1)];
  // acquire: pairs with Writer::write().
  return line.number.load(std::memory_order_acquire) == stamp_of(next_number_) ? &line : nullptr;
}

/// Maps what the notice needs.
int Reader::prepare(const Line& notice) {
  if (!make_tables()) {
    return -ENOMEM;
  }
  if (notice.buffer >= kMostBuffers) {
    return -EPROTO;
  }
  if (notice.buffer >= kFirstMarks && more_marks_ == nullptr) {
    char* const at = memory_->at(record_->more_marks.load(std::memory_order_acquire), kMostBuffers);
    if (at == nullptr) {
      return -ENOMEM;
    }
    more_marks_ = reinterpret_cast<std::atomic<uint8_t>*>(at);
  }
  if (notice.kind != Notice::kHeap) {
    return 0;
  }
  if (heap_ == nullptr) {
    heap_limit_ = record_->heap_limit.load(std::memory_order_relaxed);
    heap_ = memory_->at(record_->heap.load(std::memory_order_acquire), heap_limit_);
    if (heap_ == nullptr) {
      return -ENOMEM;
    }
  }
  return notice.heap.offset < heap_limit_ && notice.heap.bytes <= heap_limit_ - notice.heap.offset ? 0 : -EPROTO;
}

int Reader::peek(uint64_t& bytes) {
  Line* notice = nullptr;
  while ((notice = next_notice()) != nullptr && notice->kind == Notice::kNextRing) {
    if (const int error = follow(notice->ring)) {
      return error;
    }
  }
  if (notice == nullptr) {
    return -EAGAIN;
  }
  bytes = notice->kind == Notice::kHeap ? notice->heap.bytes : notice->inline_bytes;
  return 0;
}

int Reader::take(uint32_t& number) {
  const Line& notice = *next_notice();
  if (notice.kind != Notice::kHeap && notice.inline_bytes > kInlineBytes) {
    return -EPROTO;
  }
  if (!was_ever(notice.buffer) || notice.kind == Notice::kHeap) {
    if (const int error = prepare(notice)) {
      return error;
    }
    if (!was_ever(notice.buffer)) {
      numbers_.store(notice.buffer + uint32_t{1}, std::memory_order_relaxed);
    }
  }
  number = notice.buffer;
  Buffer& buffer = buffers_[number];
  after_peer(&buffer);
  buffer.generation = notice.generation;
  if (notice.kind == Notice::kHeap) {
    buffer.offset = notice.heap.offset;
    buffer.bytes = notice.heap.bytes;
  } else {
    buffer.offset = kInPrivate;
    buffer.bytes = notice.inline_bytes;
    memcpy(small_ + uint64_t{number} * sizeof(Line), notice.content, kInlineBytes);
  }
  buffer.is_readers.store(1, std::memory_order_relaxed);
  // release: the writer uses the line again.
  record_->taken.store(next_number_, std::memory_order_release);
  ++next_number_;
  ++read_;
  read_bytes_ += buffer.bytes;
  return 0;
}

bool Reader::release(uint32_t number) {
  if (buffers_[number].is_readers.load(std::memory_order_relaxed) == 0) {
    return false;
  }
  buffers_[number].is_readers.store(0, std::memory_order_relaxed);
  before_peer(&buffers_[number]);
  // release: the reader's use of the buffer comes before the writer's next. seq_cst: before the look whether that one sleeps.
  // Of two threads that free it at a time one finds it marked.
  if (mark(number).exchange(1, std::memory_order_seq_cst) != 0) {
    return false;
  }
  freed_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

}  // namespace headroom::rpipe
