// See mirrored_record.h.
#include "rpipe/mirrored_record.h"

#include <algorithm>
#include <cstring>

#include "rpipe/counted_memory.h"
#include "rpipe/records.h"

namespace headroom::rpipe {

MirroredRecord::~MirroredRecord() { give_back_counted(heap_bytes_); }

void MirroredRecord::open(const Frame& frame) {
  release_memory();
  clear_record(record_);
  lines_ = record_.lines;
  line_count_ = kFirstLines;
  first_number_ = next_number_ = 1;
  is_closed_there_ = is_lost_ = has_told_over_ = false;
  freed_.clear();
  bytes_freed_ = taken_told_ = heap_limit_ = 0;
  width_ = frame.open.width;
  record_.role = frame.open.role;
  record_.flags = frame.open.flags;
  record_.state.store(static_cast<uint32_t>(EndState::kOpen), std::memory_order_relaxed);
  record_.key.store(frame.open.key, std::memory_order_release);
}

// ---- notices -------------------------------------------------------------------------------------------------------------

/// The reader is told by broken ends (end.cc). Messages that it was told of before stay.
void MirroredRecord::lose() {
  is_lost_ = true;
  record_.state.store(static_cast<uint32_t>(EndState::kLost), std::memory_order_release);
}

/// The writer has the number again, so it has seen that the buffer was freed.
bool MirroredRecord::clear_mark(uint32_t buffer) {
  if (buffer >= kMostBuffers) {
    return false;
  }
  if (buffer < kFirstMarks) {
    record_.marks[buffer].store(0, std::memory_order_relaxed);
    return true;
  }
  if (marks_.at == nullptr) {
    marks_ = memory_.allocate_populated(kMostBuffers);
    if (marks_.at == nullptr) {
      return false;
    }
    record_.more_marks.store(marks_.offset, std::memory_order_release);
  }
  reinterpret_cast<std::atomic<uint8_t>*>(marks_.at)[buffer].store(0, std::memory_order_relaxed);
  return true;
}

bool MirroredRecord::grow_heap(uint64_t bytes) {
  if (populate_counted(memory_, heap_, heap_bytes_, bytes - heap_bytes_) != 0) {
    return false;
  }
  heap_bytes_ = bytes;
  return true;
}

/// Where the content goes; nullptr if there is no memory for it.
char* MirroredRecord::place_in_heap(const Frame& frame) {
  const uint64_t limit = frame.notice.heap_limit;
  if (frame.notice.place > limit || frame.content > limit - frame.notice.place) {
    return nullptr;
  }
  if (heap_.at == nullptr) {
    heap_ = memory_.allocate(limit);
    if (heap_.at == nullptr) {
      return nullptr;
    }
    heap_limit_ = limit;
    record_.heap_limit.store(heap_.bytes, std::memory_order_relaxed);
    record_.heap.store(heap_.offset, std::memory_order_release);
  }
  const uint64_t end = whole_pieces(frame.notice.place + frame.content);
  if (end > heap_bytes_) {
    const uint64_t next = std::min(std::max(2 * heap_bytes_, end), heap_.bytes);
    if (!grow_heap(next) && !grow_heap(end)) {
      return nullptr;
    }
  }
  return heap_.at + frame.notice.place;
}

bool MirroredRecord::go_on_in_next_ring(Line& line, uint64_t lines) {
  const uint64_t taken = record_.taken.load(std::memory_order_acquire);
  std::erase_if(left_rings_, [&](const LeftRing& left) {
    if (taken >= left.last && left.piece.at != nullptr) {
      memory_.release(left.piece);
    }
    return taken >= left.last;
  });
  const MemoryFile::Piece piece = memory_.allocate_populated(lines * sizeof(Line));
  if (piece.at == nullptr) {
    return false;
  }
  line.ring = {piece.offset, lines};
  left_rings_.push_back({ring_, next_number_});
  ring_ = piece;
  lines_ = reinterpret_cast<Line*>(piece.at);
  line_count_ = static_cast<uint32_t>(lines);
  first_number_ = next_number_ + 1;
  return true;
}

char* MirroredRecord::put(const Frame& frame, const char* content) {
  const auto kind = static_cast<Notice>(frame.notice.kind);
  const bool is_wanted = !is_lost_ && !is_closed_here() && lines_ != nullptr && frame.notice.number == next_number_;
  if (!is_wanted) {
    return nullptr;
  }
  Line& line = lines_[(next_number_ - first_number_) & (line_count_ - 1)];
  const uint64_t number = next_number_;
  line.kind = kind;
  line.buffer = frame.notice.buffer;
  line.generation = frame.notice.generation;
  char* into = nullptr;
  bool fits = kind == Notice::kNextRing || clear_mark(frame.notice.buffer);
  if (fits && kind == Notice::kInline) {
    fits = frame.content <= kInlineBytes && content != nullptr;
    if (fits) {
      line.inline_bytes = static_cast<uint8_t>(frame.content);
      memcpy(line.content, content, frame.content);
    }
  } else if (fits && kind == Notice::kHeap) {
    into = place_in_heap(frame);
    line.heap = {frame.notice.place, frame.content};
    fits = into != nullptr;
  } else if (fits) {
    fits = go_on_in_next_ring(line, frame.notice.place);
  }
  if (!fits) {
    lose();
    return nullptr;
  }
  ++next_number_;
  if (into != nullptr && content == nullptr) {
    awaited_.push_back({number, &line});
    return into;
  }
  if (into != nullptr) {
    memcpy(into, content, frame.content);
  }
  // release: pairs with Reader::peek().
  line.number.store(stamp_of(number), std::memory_order_release);
  return nullptr;
}

void MirroredRecord::put_content(const Frame& frame) {
  const auto found =
      std::find_if(awaited_.begin(), awaited_.end(), [&](const Awaited& each) { return each.number == frame.notice.number; });
  if (found == awaited_.end()) {
    return;
  }
  found->line->number.store(stamp_of(found->number), std::memory_order_release);
  awaited_.erase(found);
  if (is_closed_there_ && awaited_.empty()) {
    close();
  }
}

// ---- the way back --------------------------------------------------------------------------------------------------------

/// A writer that has closed waits for all; a narrow pipe, or a small heap, is full early.
bool MirroredRecord::has_much_to_tell() const {
  const uint64_t messages = std::min(kManyMessages, std::max<uint64_t>(width_ / 4, 1));
  const uint64_t bytes = heap_limit_ == 0 ? kManyBytes : std::min(kManyBytes, heap_limit_ / 4);
  return is_closed_there_ || taken_untold() >= messages || freed_.size() >= messages || bytes_freed_ >= bytes;
}

int MirroredRecord::tell_back(Messenger& messenger, uint16_t life) {
  if (has_told_over_) {
    return 0;  // the record may be another pipe's there
  }
  do {
    Frame frame = frame_of(FrameKind::kBack, life, record_.index);
    const size_t count = std::min<size_t>(freed_.size(), kMostFreedInFrame);
    frame.content = count * sizeof(uint16_t);
    frame.back.taken = record_.taken.load(std::memory_order_acquire);
    frame.back.is_closed = count == freed_.size() && is_over_here() ? 1 : 0;
    if (const int error = messenger.send(rank_, frame, reinterpret_cast<const char*>(freed_.data()))) {
      return error;
    }
    freed_.erase(freed_.begin(), freed_.begin() + static_cast<ptrdiff_t>(count));
    taken_told_ = frame.back.taken;
    bytes_freed_ = 0;
    has_told_over_ = frame.back.is_closed != 0;
  } while (!freed_.empty());
  return 0;
}

// ---- the end -------------------------------------------------------------------------------------------------------------

void MirroredRecord::close() {
  is_closed_there_ = true;
  if (!awaited_.empty()) {
    return;
  }
  if (!is_lost_) {
    record_.state.store(static_cast<uint32_t>(EndState::kClosed), std::memory_order_release);
  }
  release_if_over();
}

void MirroredRecord::release_if_over() {
  if (is_over_here() && is_closed_there_) {
    release_memory();
  }
}

void MirroredRecord::release_memory() {
  for (const LeftRing& left : left_rings_) {
    if (left.piece.at != nullptr) {
      memory_.release(left.piece);
    }
  }
  left_rings_.clear();
  for (MemoryFile::Piece* piece : {&ring_, &marks_, &heap_}) {
    if (piece->at != nullptr) {
      memory_.release(*piece);
    }
    *piece = {};
  }
  give_back_counted(heap_bytes_);
  heap_bytes_ = 0;
  lines_ = nullptr;
}

}  // namespace headroom::rpipe
