// A record of this process's that a peer on another node mirrors (mirror.h): messages written in it are sent, and the peer's
// returns are put in it.
//
// It goes through the record's notices as a reader on the same node would (reader.h). Not thread-safe: mirror.cc has the lock.
// The end uses the record meanwhile.
#pragma once

#include <cstdint>

#include "rpipe/frames.h"
#include "rpipe/messenger.h"
#include "rpipe/shared.h"

namespace headroom::rpipe {

class AnnouncedRecord {
 public:
  /// `record` is in own_memory(), and has its key.
  AnnouncedRecord(int rank, Record& record) : rank_(rank), record_(&record), lines_(record.lines) {}

  /// Sends that there is such an end, what was written, and that the end has closed, as far as it was not sent before. 0;
  /// -ENOMEM: not all of it could be sent now; -EIO: nor ever.
  int forward(Messenger& messenger, uint16_t life);
  /// Puts in the record what the reader has taken and freed, and that it has closed.
  void put_back(const Frame& frame, const char* freed);

  /// Whether the peer was told that the end has closed.
  [[nodiscard]] bool has_told_closed() const { return has_told_closed_; }

 private:
  [[nodiscard]] const Line* next_line() const;
  int send_open(Messenger& messenger, uint16_t life);
  int send_notice(Messenger& messenger, uint16_t life, const Line& line);

  int rank_;
  Record* record_;
  const Line* lines_;
  uint32_t line_count_ = kFirstLines;
  uint64_t first_number_ = 1;  // of the ring
  uint64_t next_number_ = 1;
  const char* heap_ = nullptr;
  bool has_told_open_ = false;
  bool has_told_closed_ = false;
};

}  // namespace headroom::rpipe
