// A channel: the messages from one process to another, in order, in shared memory.
//
// One writer and one reader, no lock, no limit: neither ever waits for the other. Records lie one after another in chunks of
// 32 KiB that the writer owns; a full chunk names the next one. A record begins on a line of 64 bytes with a header, and its
// payload follows at once, so that a short message is one line: one transfer of a line between two cores, which is what a
// message costs (docs/dev/decisions.md has the figures). Records that follow each other without an answer in between begin on
// half lines, so that fewer lines pass; the writer has a line that is shared with a record before then, since it just wrote it.
// Both sides keep a record for as long as they like; when all records of a chunk that was read to its end have been given back
// by both, the writer may use the chunk again.
//
// A header's word is written last (release) and is 0 before: the writer clears the word behind each record before it
// publishes the record. A writer that dies leaves whole records only; a record that it had not published is never seen.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>

#include "direct/message_memory.h"

namespace headroom::direct {

inline constexpr uint64_t kLineBytes = 64;
inline constexpr uint64_t kChunkBytes = 32 << 10;
/// Records' lengths and places are in half lines.
inline constexpr uint64_t kHalfBytes = kLineBytes / 2;
inline constexpr uint32_t kChunkHalves = kChunkBytes / kHalfBytes;

/// The kind of a record. 0 means that there is none yet.
enum class RecordKind : uint32_t {
  kNone = 0,
  kPayload,   // a message whose content follows
  kTransfer,  // a message whose content is fetched: a Transfer (transfer.h) follows
  kNextChunk,
  kSkip,  // nothing: the next record begins on the next line
};

struct alignas(8) RecordHeader {
  std::atomic<uint32_t> word;  // kind, and length in half lines: kind | halves << 8
  int32_t tag;
  uint64_t context;
  int32_t source;
  uint32_t bytes;  // of payload

  [[nodiscard]] char* payload() { return reinterpret_cast<char*>(this + 1); }
};
static_assert(sizeof(RecordHeader) == 24);

inline constexpr uint64_t kLinePayload = kLineBytes - sizeof(RecordHeader);  // fits in one line with the header
/// The largest payload of one record, so that no chunk is wasted by records that nearly fill it.
inline constexpr uint64_t kLargestPayload = (8 << 10) - sizeof(RecordHeader);

inline constexpr uint32_t kBurst = 8;  // half lines
/// The half lines that a record with 2 KiB needs: as many are owned ahead at most.
inline constexpr uint32_t kMostAhead = 66;

/// Between two looks at a line that the other side is to write.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Asks for a line that this side is to write. (The compiler's builtin asks for reading unless the processor is told to it.)
inline void prefetch_to_write(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

/// Whether this processor can pass on a line that was written (pass_on()).
bool can_pass_on();

/// Moves lines that were just written from this core's own caches to the one that all cores share, from where another core has
/// them sooner (docs/dev/decisions.md has the figures). Processors that cannot do that pass over the instruction.
inline void pass_on([[maybe_unused]] const void* begin, [[maybe_unused]] uint64_t bytes) {
#if defined(__x86_64__)
  for (uint64_t at = 0; at < bytes; at += kLineBytes) {
    asm volatile("cldemote %0" : : "m"(static_cast<const char*>(begin)[at]));
  }
#endif
}

inline uint32_t halves_for(uint64_t payload_bytes) {
  return static_cast<uint32_t>((sizeof(RecordHeader) + payload_bytes + kHalfBytes - 1) / kHalfBytes);
}

/// The first lines of a chunk: the reader's and the writer's, apart, since both write to theirs at each message.
struct ChunkHead {
  alignas(kLineBytes) std::atomic<uint32_t> free_again;  // set by the reader, cleared by the writer
  uint32_t reader_keeps;                                 // records that the reader has not given back
  uint32_t reader_passed;                                // it has read to the end
  alignas(kLineBytes) uint32_t writer_keeps;             // records that the writer has not given back
  ChunkHead* writer_next;                                // among those that were filled
};
inline constexpr uint32_t kFirstHalf = sizeof(ChunkHead) / kHalfBytes;

/// The chunk that a record lies in.
inline ChunkHead* chunk_of(RecordHeader* record) {
  return reinterpret_cast<ChunkHead*>(reinterpret_cast<uintptr_t>(record) & ~(kChunkBytes - 1));
}

/// The writer's end. Lies in the writer's private memory; not thread-safe.
class ChannelWriter {
 public:
  /// `memory` is this process's message memory. False: there is no memory.
  bool open(MessageMemory& memory);
  [[nodiscard]] bool is_open() const { return chunk_ != nullptr; }
  /// Where the reader begins; to be published once.
  [[nodiscard]] uint64_t first_chunk() const { return first_chunk_; }

  /// Room for a record with `bytes` (at most kLargestPayload) of payload; nullptr if there is no memory for another chunk.
  /// `on_line`: it begins on a line.
  RecordHeader* begin(uint64_t bytes, bool on_line = true) {
    if (half_ + halves_for(bytes) + 2 >= kChunkHalves) {  // a half to skip and the last one stay for kNextChunk
      return next_chunk() ? header_at(half_) : nullptr;
    }
    if (on_line && half_ % 2 != 0) {
      publish_as(header_at(half_), RecordKind::kSkip, 1);
    }
    return header_at(half_);
  }

  /// Makes the record visible. Its fields and payload are written before. `packed`: the next one is likely to follow at once,
  /// and may share a line with it.
  void publish(RecordHeader* record, RecordKind kind, bool packed = false) {
    const uint32_t halves = halves_for(record->bytes);
    publish_as(record, kind, packed ? halves : halves + (half_ + halves) % 2);
    expect_like(halves);
    if (half_ + ahead_ >= owned_to_) {
      own_lines_ahead();
    }
  }

  /// The writer goes on looking at a record that it publishes, until it gives it back.
  static void keep(RecordHeader* record) { ++chunk_of(record)->writer_keeps; }
  static void give_back(RecordHeader* record) { --chunk_of(record)->writer_keeps; }

  [[nodiscard]] uint64_t chunks() const { return chunk_count_; }
  /// Whether the reader keeps up: fewer chunks than `few` were made so far, or the oldest may be used again.
  [[nodiscard]] bool has_room(uint64_t few) const {
    return chunk_count_ < few || oldest_filled_ == nullptr || oldest_filled_->free_again.load(std::memory_order_relaxed) != 0;
  }

 private:
  RecordHeader* header_at(uint32_t half) {
    return reinterpret_cast<RecordHeader*>(reinterpret_cast<char*>(chunk_) + half * kHalfBytes);
  }
  /// The reader has had the lines that come next, and each must come back before a store to it leaves the processor's store
  /// buffer. Stores to several lines at once let them come together. (Asking for them by prefetchw does nothing on some
  /// processors, where this one has them too, to read: 0.22 us a message between distant cores, 0.15 so.)
  void own_lines_ahead() {
    const uint32_t next = (half_ / kBurst + 1) * kBurst;
    const uint32_t to = next + ahead_;
    for (uint32_t half = std::max(next, owned_to_); half < to && half < kChunkHalves; half += 2) {
      header_at(half)->word.store(0, std::memory_order_relaxed);
    }
    owned_to_ = to;
  }
  /// The next records are likely to be as long as the last ones.
  void expect_like(uint32_t halves) {
    constexpr uint32_t kBelieved = 16;  // shorter ones in a row
    const uint32_t lines = (halves + 1) & ~uint32_t{1};
    const uint32_t wanted = lines < kBurst ? kBurst : std::min(lines, kMostAhead);
    if (wanted >= ahead_ || ++shorter_in_a_row_ == kBelieved) {
      ahead_ = wanted;
      shorter_in_a_row_ = 0;
    }
  }
  void publish_as(RecordHeader* record, RecordKind kind, uint32_t halves) {
    half_ += halves;
    header_at(half_)->word.store(0, std::memory_order_relaxed);
    // release: pairs with the acquire in ChannelReader::peek().
    record->word.store(static_cast<uint32_t>(kind) | halves << 8, std::memory_order_release);
  }
  bool next_chunk();
  ChunkHead* make_chunk();
  ChunkHead* take_chunk();

  MessageMemory* memory_ = nullptr;
  ChunkHead* chunk_ = nullptr;
  ChunkHead* oldest_filled_ = nullptr;
  ChunkHead* latest_filled_ = nullptr;
  uint32_t half_ = kFirstHalf;
  uint32_t owned_to_ = kFirstHalf;  // lines before this half line were made this core's
  uint32_t ahead_ = kBurst;         // half lines that the next record is likely to need
  uint32_t shorter_in_a_row_ = 0;   // records that needed less
  uint64_t first_chunk_ = 0;
  uint64_t chunk_count_ = 0;
};

/// The reader's end, in the reader's private memory; not thread-safe.
class ChannelReader {
 public:
  /// `base` is where the message memory of all processes is mapped here.
  void open(char* base, uint64_t first_chunk) {
    base_ = base;
    chunk_ = base + first_chunk;
    half_ = kFirstHalf;
  }
  [[nodiscard]] bool is_open() const { return chunk_ != nullptr; }

  /// The next record, or nullptr if there is none yet. It stays the next one until advance().
  RecordHeader* peek() {
    auto* record = reinterpret_cast<RecordHeader*>(chunk_ + half_ * kHalfBytes);
    const uint32_t word = record->word.load(std::memory_order_acquire);
    if (word == 0) {
      return nullptr;
    }
    return (word & 0xff) >= static_cast<uint32_t>(RecordKind::kNextChunk) ? follow(record) : record;
  }

  /// Passes the record that peek() returned. It stays valid until it is given back.
  void advance(RecordHeader* record) {
    half_ += record->word.load(std::memory_order_relaxed) >> 8;
    ++chunk_of(record)->reader_keeps;
  }

  /// The record's content is not needed any more.
  static void give_back(RecordHeader* record) {
    ChunkHead* head = chunk_of(record);
    if (--head->reader_keeps == 0 && head->reader_passed != 0) {
      free_chunk(head);
    }
  }

  static RecordKind kind_of(const RecordHeader& record) {
    return static_cast<RecordKind>(record.word.load(std::memory_order_relaxed) & 0xff);
  }

 private:
  static void free_chunk(ChunkHead* head) {
    head->reader_passed = 0;
    // release: the writer overwrites only what we have read.
    head->free_again.store(1, std::memory_order_release);
  }
  RecordHeader* follow(RecordHeader* record);

  char* base_ = nullptr;
  char* chunk_ = nullptr;
  uint32_t half_ = kFirstHalf;
};

}  // namespace headroom::direct
