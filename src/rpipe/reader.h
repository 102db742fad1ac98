// The reading end of a direction: notices in their order, and buffers that are the reader's until it frees them.
//
// Content that a notice holds itself is copied to private memory when it is read, so its line can be used again at once; longer
// content is used where it is, in the writer's heap. To free a buffer is to set its mark, which the writer looks at.
//
// Not thread-safe, except for release().
#pragma once

#include <atomic>
#include <cstdint>

#include "rpipe/memory_file.h"
#include "rpipe/shared.h"

namespace headroom::rpipe {

class Reader {
 public:
  struct Buffer {
    uint64_t offset;  // in the heap, or kInPrivate
    uint64_t bytes;
    uint16_t generation;
    std::atomic<uint8_t> is_readers;  // any thread may free it
  };
  static constexpr uint64_t kInPrivate = UINT64_MAX;

  Reader() = default;
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  /// The direction in this record of the writer's. `memory`: the writer's file.
  void open(PeerMemory& memory, Record& record);
  void close();

  /// How long the next message is. -EAGAIN: there is none; -ENOMEM: it cannot be mapped.
  int peek(uint64_t& bytes);
  /// Takes the next message, which peek() has found.
  int take(uint32_t& buffer);
  /// Frees a message that is the reader's: false if another thread was faster. By any thread. Ends with a full fence.
  bool release(uint32_t buffer);

  [[nodiscard]] bool is_readers(uint32_t number, uint16_t generation) const {
    return was_ever(number) && buffers_[number].generation == generation &&
           buffers_[number].is_readers.load(std::memory_order_relaxed) != 0;
  }
  [[nodiscard]] bool was_ever(uint32_t number) const { return number < numbers_.load(std::memory_order_relaxed); }
  [[nodiscard]] const Buffer& buffer(uint32_t number) const { return buffers_[number]; }
  [[nodiscard]] char* at(uint32_t number) const {
    const Buffer& buffer = buffers_[number];
    return buffer.offset == kInPrivate ? small_ + uint64_t{number} * 64 : heap_ + buffer.offset;
  }
  /// So many messages are the reader's.
  [[nodiscard]] uint64_t held() const { return read_ - freed_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t read() const { return read_; }
  [[nodiscard]] uint64_t read_bytes() const { return read_bytes_; }

 private:
  Line* next_notice();
  int prepare(const Line& notice);
  bool make_tables();
  int follow(RingPlace place);
  std::atomic<uint8_t>& mark(uint32_t number);

  PeerMemory* memory_ = nullptr;
  Record* record_ = nullptr;
  Line* lines_ = nullptr;
  uint32_t line_count_ = 0;
  uint64_t first_number_ = 1;  // of the ring
  uint64_t next_number_ = 1;   // of notices
  RingPlace ring_ = {};        // lines: 0 for the record's own

  Buffer* buffers_ = nullptr;         // by number
  char* small_ = nullptr;             // by number: what a notice held
  std::atomic<uint32_t> numbers_{0};  // were ever used; any thread asks
  std::atomic<uint8_t>* more_marks_ = nullptr;
  char* heap_ = nullptr;
  uint64_t heap_limit_ = 0;
  std::atomic<uint64_t> freed_{0};
  uint64_t read_ = 0;
  uint64_t read_bytes_ = 0;
};

}  // namespace headroom::rpipe
