// See writer.h.
#include "rpipe/writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rpipe/counted_memory.h"

namespace headroom::rpipe {

namespace {

constexpr uint64_t kFirstHeapBytes = 64 << 10;
constexpr uint64_t kEasyHeapBytes = 1 << 20;  // it grows to at once
constexpr uint32_t kEasyBuffers = 1024;
// From so many bytes on a look at a mark, which the reader's cache has, costs less than memory that is cold: with 16 KiB a
// message took 2.2 times what a bare copy takes without the look.
constexpr uint64_t kWarmBytes = 8192;
constexpr uint32_t kMostLines = 65536;  // more than there are buffers, by one for the notice of the next ring
constexpr uint32_t kRingGrowth = 16;
constexpr uint16_t kGenerations = 0x7ff;  // as many bits as an address has for them (address.h)

}  // namespace

Writer::~Writer() {
  give_back_counted(heap_.units() * kUnitBytes);
  base::give_back_memory(buffers_, kMostBuffers * sizeof(Buffer));
  base::give_back_memory(small_, kMostBuffers * kUnitBytes);
  base::give_back_memory(free_numbers_, kMostBuffers * sizeof(uint16_t));
}

bool Writer::open(MemoryFile& file, Record& record, const WriterOptions& options) {
  file_ = &file;
  record_ = &record;
  options_ = options;
  lines_ = record.lines;
  line_count_ = kFirstLines;
  return true;
}

void Writer::close() {
  for (const LeftRing& left : left_rings_) {
    if (left.piece.at != nullptr) {
      file_->release(left.piece);
    }
  }
  for (const MemoryFile::Piece* piece : {&ring_piece_, &marks_piece_, &heap_piece_}) {
    if (piece->at != nullptr) {
      file_->release(*piece);
    }
  }
  left_rings_.clear();
}

bool Writer::make_tables() {
  if (buffers_ == nullptr) {
    buffers_ = static_cast<Buffer*>(base::reserve_memory(kMostBuffers * sizeof(Buffer)));
  }
  if (small_ == nullptr) {
    small_ = static_cast<char*>(base::reserve_memory(kMostBuffers * kUnitBytes));
  }
  if (free_numbers_ == nullptr) {
    free_numbers_ = static_cast<uint16_t*>(base::reserve_memory(kMostBuffers * sizeof(uint16_t)));
  }
  return buffers_ != nullptr && small_ != nullptr && free_numbers_ != nullptr;
}

std::atomic<uint8_t>& Writer::mark(uint32_t number) {
  return number < kFirstMarks ? record_->marks[number] : more_marks_[number];
}

// ---- buffers -------------------------------------------------------------------------------------------------------------

int Writer::make_more_marks() {
  marks_piece_ = file_->allocate_populated(kMostBuffers);
  if (marks_piece_.at == nullptr) {
    return -ENOMEM;
  }
  more_marks_ = reinterpret_cast<std::atomic<uint8_t>*>(marks_piece_.at);
  record_->more_marks.store(marks_piece_.offset, std::memory_order_release);
  return 0;
}

int Writer::take_number(bool may_grow, uint32_t& number) {
  if (used_ >= options_.width) {
    collect_in_order();
    if (used_ >= options_.width) {
      collect_all();
    }
    if (used_ >= options_.width) {
      return -EAGAIN;
    }
  }
  const uint32_t numbers = numbers_.load(std::memory_order_relaxed);
  if (free_count_ == 0 && numbers >= kFirstMarks) {
    collect_in_order();
  }
  if (free_count_ > 0) {
    number = free_numbers_[--free_count_];
    return 0;
  }
  if (numbers >= kEasyBuffers && !may_grow) {
    collect_all();
    if (free_count_ == 0) {
      return -EAGAIN;
    }
    number = free_numbers_[--free_count_];
    return 0;
  }
  if (numbers == kFirstMarks && more_marks_ == nullptr) {
    if (const int error = make_more_marks()) {
      return error;
    }
  }
  number = numbers;
  numbers_.store(numbers + 1, std::memory_order_relaxed);
  return 0;
}

void Writer::free_now(uint32_t number) {
  Buffer& buffer = buffers_[number];
  if (buffer.first != Heap::kNone) {
    heap_.give_back(buffer.first);
  }
  freed_ += buffer.stage == Stage::kWritten ? 1 : 0;
  buffer.stage = Stage::kFree;
  buffer.generation = (buffer.generation + 1) & kGenerations;
  mark(number).store(0, std::memory_order_relaxed);  // the reader gets the number again by a notice, which is released
  free_numbers_[free_count_++] = static_cast<uint16_t>(number);
  --used_;
}

void Writer::collect_in_order() {
  while (written_first_ < written_order_.size()) {
    const uint16_t number = written_order_[written_first_];
    if (mark(number).load(std::memory_order_acquire) == 0) {
      break;
    }
    free_now(number);
    ++written_first_;
  }
  if (written_first_ == written_order_.size()) {
    written_order_.clear();
    written_first_ = 0;
  } else if (written_first_ > kMostBuffers) {
    written_order_.erase(written_order_.begin(), written_order_.begin() + static_cast<ptrdiff_t>(written_first_));
    written_first_ = 0;
  }
}

void Writer::collect_all() {
  size_t kept = 0;
  for (size_t each = written_first_; each < written_order_.size(); ++each) {
    const uint16_t number = written_order_[each];
    if (mark(number).load(std::memory_order_acquire) == 0) {
      written_order_[kept++] = number;
    } else {
      free_now(number);
    }
  }
  written_order_.resize(kept);
  written_first_ = 0;
  if (taken_back_.exchange(0, std::memory_order_acquire) != 0) {
    for (uint32_t number = 0; was_ever(number); ++number) {
      if (buffers_[number].stage == Stage::kAllocated && mark(number).load(std::memory_order_acquire) != 0) {
        free_now(number);
      }
    }
  }
}

bool Writer::is_all_back() {
  collect_all();
  return written_order_.empty();
}

bool Writer::take_back(uint32_t number) {
  if (buffers_[number].is_writers.exchange(0, std::memory_order_acq_rel) == 0) {
    return false;
  }
  mark(number).store(1, std::memory_order_release);
  taken_back_.fetch_add(1, std::memory_order_release);
  return true;
}

bool Writer::try_for_room() {
  uint32_t number = 0;
  if (allocate(0, true, number) != 0) {
    return false;
  }
  buffers_[number].is_writers.store(0, std::memory_order_relaxed);
  free_now(number);
  return true;
}

// ---- the heap ------------------------------------------------------------------------------------------------------------

int Writer::open_heap() {
  if (heap_piece_.at == nullptr) {
    heap_piece_ = file_->allocate(options_.heap_bytes);
    if (heap_piece_.at == nullptr) {
      return -ENOMEM;
    }
    record_->heap_limit.store(heap_piece_.bytes, std::memory_order_relaxed);
    record_->heap.store(heap_piece_.offset, std::memory_order_release);
  }
  if (heap_.most_units() == 0 && !heap_.open(static_cast<uint32_t>(options_.heap_bytes / kUnitBytes), options_.policy)) {
    return -ENOMEM;
  }
  return 0;
}

/// By as much as it has, or more for so many units. -EAGAIN: it has all it may have, now or ever.
int Writer::grow_heap(uint32_t units, bool may_grow) {
  const uint64_t now = heap_.units() * kUnitBytes;
  const uint64_t wanted = std::max({2 * now, now + units * kUnitBytes, kFirstHeapBytes});
  const uint64_t next = std::min(whole_pieces(wanted), heap_.most_units() * kUnitBytes);
  // A heap with nothing in it is too small: the message is longer than the heap.
  if (next <= now || (!may_grow && next > kEasyHeapBytes && heap_.used_units() > 0)) {
    return -EAGAIN;
  }
  if (const int error = populate_counted(*file_, heap_piece_, now, next - now)) {
    return error;
  }
  heap_.grow(static_cast<uint32_t>(next / kUnitBytes));
  return 0;
}

int Writer::place(uint64_t bytes, bool may_grow, uint32_t& first) {
  first = Heap::kNone;
  if (bytes <= kInlineBytes) {
    return 0;
  }
  if (bytes > options_.heap_bytes) {
    return -EMSGSIZE;
  }
  int error = open_heap();
  const auto units = static_cast<uint32_t>(units_of(bytes));
  if (error == 0 && bytes >= kWarmBytes && options_.policy != RPIPE_NEXT_FIT) {
    collect_in_order();
  }
  if (error == 0) {
    first = heap_.take(units);
  }
  if (error == 0 && first == Heap::kNone) {
    collect_in_order();
    first = heap_.take(units);
  }
  if (error == 0 && first == Heap::kNone) {
    collect_all();
    first = heap_.take(units);
  }
  while (error == 0 && first == Heap::kNone) {
    error = grow_heap(units, may_grow);
    first = error == 0 ? heap_.take(units) : first;
  }
  return error;
}

int Writer::allocate(uint64_t bytes, bool may_grow, uint32_t& number) {
  if (free_numbers_ == nullptr && !make_tables()) {
    return -ENOMEM;
  }
  if (options_.collects_always) {
    collect_all();
  }
  uint32_t first = Heap::kNone;
  if (const int error = place(bytes, may_grow, first)) {
    return error;
  }
  if (const int error = take_number(may_grow, number)) {
    if (first != Heap::kNone) {
      heap_.give_back(first);
    }
    return error;
  }
  ++used_;
  Buffer& buffer = buffers_[number];
  buffer.bytes = bytes;
  buffer.first = first;
  buffer.stage = Stage::kAllocated;
  buffer.is_writers.store(1, std::memory_order_relaxed);
  return 0;
}

// ---- the ring ------------------------------------------------------------------------------------------------------------

void Writer::release_left_rings(uint64_t taken) {
  size_t kept = 0;
  for (const LeftRing& left : left_rings_) {
    if (taken < left.last) {
      left_rings_[kept++] = left;
    } else if (left.piece.at != nullptr) {
      file_->release(left.piece);
    }
  }
  left_rings_.resize(kept);
}

/// Leaves a line free beside the one that is written next.
int Writer::make_room_in_ring() {
  const auto untaken = [&] { return next_number_ - 1 - std::max(seen_taken_, first_number_ - 1); };
  if (untaken() < line_count_ - 1) {
    return 0;
  }
  seen_taken_ = record_->taken.load(std::memory_order_acquire);
  if (!left_rings_.empty()) {
    release_left_rings(seen_taken_);
  }
  if (untaken() < line_count_ - 1) {
    return 0;
  }
  const uint32_t lines = std::min(line_count_ * kRingGrowth, kMostLines);
  const MemoryFile::Piece piece = file_->allocate_populated(lines * sizeof(Line));
  if (piece.at == nullptr) {
    return -ENOMEM;
  }
  Line& leave = line(next_number_);
  leave.kind = Notice::kNextRing;
  leave.ring = {piece.offset, lines};
  leave.number.store(stamp_of(next_number_), std::memory_order_release);
  left_rings_.push_back({ring_piece_, next_number_});
  ++next_number_;
  ring_piece_ = piece;
  lines_ = reinterpret_cast<Line*>(piece.at);
  line_count_ = lines;
  first_number_ = next_number_;
  return 0;
}

int Writer::write(uint32_t number, uint64_t bytes) {
  if (const int error = make_room_in_ring()) {
    return error;
  }
  Buffer& buffer = buffers_[number];
  buffer.is_writers.store(0, std::memory_order_relaxed);
  buffer.stage = Stage::kWritten;
  Line& notice = line(next_number_);
  notice.buffer = static_cast<uint16_t>(number);
  notice.generation = buffer.generation;
  if (buffer.first == Heap::kNone) {
    notice.kind = Notice::kInline;
    notice.inline_bytes = static_cast<uint8_t>(bytes);
    memcpy(notice.content, small_ + uint64_t{number} * kUnitBytes, kInlineBytes);
  } else {
    notice.kind = Notice::kHeap;
    notice.heap = {buffer.first * kUnitBytes, bytes};
  }
  written_order_.push_back(static_cast<uint16_t>(number));
  // release: pairs with Reader::peek().
  notice.number.store(stamp_of(next_number_), std::memory_order_release);
  ++next_number_;
  ++written_;
  written_bytes_ += bytes;
  return 0;
}

}  // namespace headroom::rpipe
