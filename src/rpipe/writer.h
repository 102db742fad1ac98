// The writing end of a direction: buffers of its heap, and notices of those that were written.
//
// Each buffer that is not FREE has a number, by which both ends know it (Address in address.h); numbers are used again, the
// last freed first. Content that fits in a notice is built in private memory and copied into the line when it is written;
// longer content lies in the heap, which both ends have mapped. The heap is made at the first message that needs it, small, and
// is doubled when there is no room; but beyond a megabyte, or a thousand buffers, only for a caller that has waited for the
// reader (`may_grow`), else one that merely runs ahead would fill all that the heap may ever have.
//
// A buffer was freed when its mark says so, by whichever end. The writer looks at the marks in the order of writing while they
// are set, and at all of them when that is not enough: a reader that frees out of order starves nobody.
//
// The ring of lines has room for what was not taken, and one more for the notice that says where the next, longer ring is; a
// ring that was left is released once all of it has been taken.
//
// Not thread-safe, except for take_back().
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "rpipe/heap.h"
#include "rpipe/memory_file.h"
#include "rpipe/shared.h"

namespace headroom::rpipe {

struct WriterOptions {
  uint32_t width = kMostBuffers;
  uint64_t heap_bytes = 0;
  rpipe_policy policy = RPIPE_FIRST_FIT;
  bool collects_always = false;
};

class Writer {
 public:
  enum class Stage : uint8_t { kFree = 0, kAllocated, kWritten };
  struct Buffer {
    uint64_t bytes;
    uint32_t first;  // unit of the heap, or Heap::kNone
    uint16_t generation;
    Stage stage;                      // as far as the writing thread knows
    std::atomic<uint8_t> is_writers;  // any thread may free it
  };

  Writer() = default;
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// A new direction in this record, which is in this process's file. False: no addresses.
  bool open(MemoryFile& file, Record& record, const WriterOptions& options);
  /// Nobody uses the direction any more.
  void close();

  /// The number of a buffer for so many bytes. -EAGAIN, -EMSGSIZE, -ENOMEM.
  int allocate(uint64_t bytes, bool may_grow, uint32_t& buffer);
  /// Writes so many bytes of the buffer, which is the writer's. -ENOMEM: the notice cannot be had.
  int write(uint32_t buffer, uint64_t bytes);
  /// Frees a buffer that is the writer's. By any thread; false if another one was faster.
  bool take_back(uint32_t buffer);

  /// Whether there is room for a small message.
  bool try_for_room();
  [[nodiscard]] const Buffer& buffer(uint32_t number) const { return buffers_[number]; }
  [[nodiscard]] bool is_writers(uint32_t number, uint16_t generation) const {
    return was_ever(number) && buffers_[number].generation == generation &&
           buffers_[number].is_writers.load(std::memory_order_relaxed) != 0;
  }
  /// Whether there was such a buffer, which is none now.
  [[nodiscard]] bool was_ever(uint32_t number) const { return number < numbers_.load(std::memory_order_relaxed); }
  [[nodiscard]] char* at(uint32_t number) const {
    const Buffer& buffer = buffers_[number];
    return buffer.first == Heap::kNone ? small_ + uint64_t{number} * kUnitBytes : heap_piece_.at + buffer.first * kUnitBytes;
  }
  /// Whether the reader has taken all that was written.
  [[nodiscard]] bool is_all_taken() const { return record_->taken.load(std::memory_order_acquire) == next_number_ - 1; }
  /// Whether nothing that was written is the reader's, or on its way.
  bool is_all_back();

  [[nodiscard]] uint64_t written() const { return written_; }
  [[nodiscard]] uint64_t written_bytes() const { return written_bytes_; }
  [[nodiscard]] uint64_t freed() const { return freed_; }
  [[nodiscard]] const Heap& heap() const { return heap_; }

 private:
  struct LeftRing {
    MemoryFile::Piece piece;  // at: nullptr for the record's own
    uint64_t last;            // the number of the notice that leaves it
  };

  bool make_tables();
  int take_number(bool may_grow, uint32_t& number);
  int place(uint64_t bytes, bool may_grow, uint32_t& first);
  int open_heap();
  int grow_heap(uint32_t units, bool may_grow);
  int make_more_marks();
  std::atomic<uint8_t>& mark(uint32_t number);
  void free_now(uint32_t number);
  void collect_in_order();
  void collect_all();
  [[nodiscard]] Line& line(uint64_t number) { return lines_[(number - first_number_) & (line_count_ - 1)]; }
  int make_room_in_ring();
  void release_left_rings(uint64_t taken);

  MemoryFile* file_ = nullptr;
  Record* record_ = nullptr;
  WriterOptions options_;

  // The ring. Numbers count notices from 1, those of the next ring among them; so does Record::taken.
  Line* lines_ = nullptr;
  uint32_t line_count_ = 0;
  uint64_t first_number_ = 1;  // of the ring
  uint64_t next_number_ = 1;
  uint64_t seen_taken_ = 0;  // notices
  MemoryFile::Piece ring_piece_;
  std::vector<LeftRing> left_rings_;

  // Buffers.
  Buffer* buffers_ = nullptr;  // by number
  char* small_ = nullptr;      // by number: what fits in a notice
  uint16_t* free_numbers_ = nullptr;
  uint32_t free_count_ = 0;
  std::atomic<uint32_t> numbers_{0};  // were ever used; any thread asks
  uint32_t used_ = 0;                 // are not FREE
  std::atomic<uint8_t>* more_marks_ = nullptr;
  MemoryFile::Piece marks_piece_;
  std::vector<uint16_t> written_order_;  // those that were written and not collected, from written_first_ on
  size_t written_first_ = 0;
  std::atomic<uint32_t> taken_back_{0};  // since the last look at all

  Heap heap_;
  MemoryFile::Piece heap_piece_;

  uint64_t written_ = 0;
  uint64_t written_bytes_ = 0;
  uint64_t freed_ = 0;
};

}  // namespace headroom::rpipe
