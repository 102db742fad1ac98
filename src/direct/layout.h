// Layouts: where the bytes of a datatype's elements lie, compact enough to be walked while copying.
//
// A layout is a list of runs in the order in which the datatype lists its elements: each run is `count` pieces of `bytes`
// bytes, `stride` apart. Element i of a message begins `extent` further on than element i - 1. It is position-independent and
// lies in message memory, so a receiver walks the sender's layout and its own together and nothing is packed in between
// (PVAS, section "derived datatypes"). Content that has no gaps has no layout at all (nullptr).
#pragma once

#include <atomic>
#include <cstdint>

namespace headroom::direct {

class MessageMemory;

struct Run {
  int64_t offset;
  uint64_t bytes;
  uint64_t count;
  int64_t stride;
};

struct Layout {
  uint64_t element_bytes;            // without gaps
  int64_t extent;                    // from one element to the next
  int64_t first;                     // lowest and
  int64_t end;                       // highest address of one element's bytes (one past), from its origin
  uint64_t runs;                     // entries of `run`
  std::atomic<uint32_t> references;  // the datatype, and messages in flight
  Run run[];
};

/// Collects the runs of a datatype; neighbours are joined. Private memory that grows; not thread-safe.
class LayoutBuilder {
 public:
  LayoutBuilder() = default;
  LayoutBuilder(const LayoutBuilder&) = delete;
  LayoutBuilder& operator=(const LayoutBuilder&) = delete;

  /// Gives the builder's memory back; to be called at the end.
  void drop();

  /// `count` pieces of `bytes` bytes from `offset` on, `stride` apart, come next.
  void add(int64_t offset, uint64_t bytes, uint64_t count, int64_t stride);
  /// Adds all of `other`'s runs `count` times, `stride` apart, from `offset` on.
  void add_all(const LayoutBuilder& other, int64_t offset, uint64_t count, int64_t stride);

  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  /// Whether elements `extent` apart have no gaps within or between them, and begin at their origin.
  [[nodiscard]] bool is_contiguous(int64_t extent) const;
  /// Makes the layout, with one reference; nullptr if there is no memory.
  [[nodiscard]] Layout* finish(MessageMemory& memory, int64_t extent) const;

 private:
  bool join(int64_t offset, uint64_t bytes, uint64_t count, int64_t stride);

  Run* runs_ = nullptr;
  uint64_t count_ = 0;
  uint64_t room_ = 0;
  uint64_t bytes_ = 0;
  bool failed_ = false;
};

inline void keep(Layout* layout) {
  if (layout != nullptr) {
    layout->references.fetch_add(1, std::memory_order_relaxed);
  }
}
/// Gives a reference back; the owner of the layout alone may call this.
void let_go(Layout* layout, MessageMemory& memory);

/// An operation that arriving content goes through, instead of overwriting the content there: a reduction's.
struct Combine {
  void (*apply)(const Combine& self, const void* from, void* into, uint64_t bytes);
};

/// A place in memory that content comes from or goes to: `bytes` bytes at `address`, in the layout's order.
struct Content {
  char* address;
  uint64_t bytes;
  const Layout* layout;
  const Combine* combine = nullptr;  // of a receive without a layout that is too short to stream (kSharedFrom, transfer.h)
};

/// The lowest address of the content, and how far it reaches.
struct Span {
  char* begin;
  uint64_t bytes;
};
Span span_of(const Content& content);

/// Walks the pieces of a content.
class Walk {
 public:
  explicit Walk(const Content& content) : layout_(content.layout), at_(content.address), left_(content.bytes) {
    if (layout_ == nullptr) {
      piece_ = at_;
      piece_bytes_ = left_;
    } else if (left_ > 0) {
      load();
    }
  }
  [[nodiscard]] char* piece() const { return piece_; }
  [[nodiscard]] uint64_t piece_bytes() const { return piece_bytes_; }
  [[nodiscard]] uint64_t left() const { return left_; }

  /// Passes `bytes` bytes, at most piece_bytes().
  void pass(uint64_t bytes) {
    left_ -= bytes;
    piece_ += bytes;
    piece_bytes_ -= bytes;
    if (piece_bytes_ == 0 && left_ > 0) {
      next();
    }
  }
  /// Passes `bytes` bytes, any number up to left(), without looking at each piece.
  void skip(uint64_t bytes);

  /// The pieces ahead, of `bytes` bytes each (at most piece_bytes()): so many, each `step` after the one before.
  struct Row {
    int64_t step;
    uint64_t count;
  };
  [[nodiscard]] Row row_ahead(uint64_t bytes) const;
  /// Rows of `row` ahead, each `step` after the one before; the first is ahead now.
  [[nodiscard]] Row rows_ahead(const Row& row, uint64_t bytes) const;

 private:
  void next();
  void load();

  const Layout* layout_;
  char* at_;  // origin of the present element
  uint64_t left_;
  char* piece_ = nullptr;
  uint64_t piece_bytes_ = 0;
  uint64_t run_ = 0;
  uint64_t in_run_ = 0;
};

/// Copies `bytes` bytes from one walk to the other.
void copy(Walk& to, Walk& from, uint64_t bytes);
/// All of it, to where it lies in one piece.
inline void gather(char* to, const Content& content) {
  Walk from(content);
  Walk into({to, content.bytes, nullptr});
  copy(into, from, content.bytes);
}
/// Copies as much as both have.
void copy_content(const Content& to, const Content& from);

}  // namespace headroom::direct
