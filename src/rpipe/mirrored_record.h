// The mirror of a record whose writer is on another node, with its ring, marks and heap (mirror.h): messages that come are put
// where the writer has them on its node, and word of what the reader does with them is gathered for the writer.
//
// A notice is seen by the reader once its content is here; the reader takes them in order. An end that the peer has closed is
// closed here once all content has come.
//
// Not thread-safe: mirror.cc has the lock. The reader uses the record meanwhile, as on a node.
#pragma once

#include <cstdint>
#include <vector>

#include "rpipe/frames.h"
#include "rpipe/memory_file.h"
#include "rpipe/messenger.h"
#include "rpipe/shared.h"

namespace headroom::rpipe {

class MirroredRecord {
 public:
  /// `record` is in `memory`.
  MirroredRecord(MemoryFile& memory, Record& record, int rank) : memory_(memory), record_(record), rank_(rank) {}
  ~MirroredRecord();
  MirroredRecord(const MirroredRecord&) = delete;
  MirroredRecord& operator=(const MirroredRecord&) = delete;

  /// The peer has opened an end with it.
  void open(const Frame& frame);
  /// A notice. `content`: the message's; nullptr: that follows, and this says where to. nullptr again: nowhere.
  char* put(const Frame& frame, const char* content);
  /// Content that followed has come.
  void put_content(const Frame& frame);
  /// The peer has closed the end.
  void close();

  /// Gives its memory back if both ends are closed and nothing is on its way; when the end here has closed.
  void release_if_over();

  /// The reader has freed the buffer, which had so many bytes.
  void free(uint16_t buffer, uint64_t bytes) {
    freed_.push_back(buffer);
    bytes_freed_ += bytes;
  }
  /// Sends what was taken and freed, and whether the end here is over. 0; -ENOMEM: not now; -EIO: nor ever.
  int tell_back(Messenger& messenger, uint16_t life);
  /// Whether the writer may need to hear of it before more has been read.
  [[nodiscard]] bool has_much_to_tell() const;
  /// Whether the end here has closed, and nothing is on its way into its memory: the writer may use the record anew.
  [[nodiscard]] bool is_over_here() const { return is_closed_here() && awaited_.empty(); }
  [[nodiscard]] bool is_all_taken() const { return record_.taken.load(std::memory_order_relaxed) + 1 == next_number_; }

 private:
  static constexpr uint64_t kManyMessages = 8;
  static constexpr uint64_t kManyBytes = 16 << 10;  // a quarter of a heap as it is first made

  struct LeftRing {
    MemoryFile::Piece piece;  // at: nullptr for the record's own
    uint64_t last;
  };

  struct Awaited {
    uint64_t number;
    Line* line;
  };

  [[nodiscard]] bool is_closed_here() const { return record_.peer_closed.load(std::memory_order_relaxed) != 0; }
  [[nodiscard]] uint64_t taken_untold() const { return record_.taken.load(std::memory_order_relaxed) - taken_told_; }
  void release_memory();
  bool clear_mark(uint32_t buffer);
  bool grow_heap(uint64_t bytes);
  char* place_in_heap(const Frame& frame);
  bool go_on_in_next_ring(Line& line, uint64_t lines);
  void lose();

  MemoryFile& memory_;
  Record& record_;
  const int rank_;

  Line* lines_ = nullptr;
  uint32_t line_count_ = 0;
  uint64_t first_number_ = 1;  // of the ring
  uint64_t next_number_ = 1;
  MemoryFile::Piece ring_;
  std::vector<LeftRing> left_rings_;
  MemoryFile::Piece marks_;
  MemoryFile::Piece heap_;
  uint64_t heap_bytes_ = 0;       // that have memory
  std::vector<Awaited> awaited_;  // notices whose content has not come
  bool is_closed_there_ = false;
  bool is_lost_ = false;
  bool has_told_over_ = false;
  std::vector<uint16_t> freed_;  // and not told
  uint64_t bytes_freed_ = 0;     // of these
  uint64_t taken_told_ = 0;
  uint64_t width_ = 0;
  uint64_t heap_limit_ = 0;  // 0: it has no heap yet
};

}  // namespace headroom::rpipe
