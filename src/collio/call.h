// A collective call, as one rank sees it: its work for the aggregators of its bytes (source.h), and for others if it is an
// aggregator (aggregator.h).
//
// Aggregators pull: they ask the ranks for the bytes that belong into a window, when they have room for them. So an
// aggregator's needs are bounded by its windows and a few messages, however many ranks and pieces there are. Nobody waits:
// step() does what can be done now, for a call that blocks and for one that does not.
#pragma once

#include <algorithm>
#include <cstdint>

#include "collio/file_access.h"
#include "collio/messages.h"
#include "collio/piece_list.h"
#include "collio/plan.h"
#include "direct/layout.h"

namespace headroom::collio {

struct CallDescription {
  bool writes = false;
  int rank = 0;
  int size = 0;
  const Opening* openings = nullptr;  // of all ranks
  const Domain* domains = nullptr;
  int domain_count = 0;
  direct::Content user = {};  // this rank's memory
  ViewOfPieces view;          // where this rank's opening says kIsList
  FileAccess file;
  bool fills_holes = true;  // short ones: no rank writes there meanwhile; else pieces are written one by one, under a lock
  bool drops_pages = true;  // of the file, where they would not fit beside the windows
  int64_t most_window = kLargestWindow;
  Messages messages = {};
  void (*wake)() = nullptr;     // wakes this rank: a job of its windows is done
  int64_t (*room)() = nullptr;  // memory left on the node now
};

/// The result of a call, for all ranks to agree on.
struct Outcome {
  int error = 0;                    // the kernel's number
  int64_t end_of_file = INT64_MAX;  // where a read met it
  int64_t windows = 0;              // and what it took
  int64_t window_bytes = 0;         // of the largest
  int64_t rounds_read_first = 0;    // windows that were read before they were written
  int64_t windows_dropped = 0;      // whose pages were taken out of the page cache
};

class Source;
class Aggregator;

class Call {
 public:
  Call() = default;
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// How many transfers it may have at a time.
  static int slots_needed(const CallDescription& call);
  /// The description's arrays must stay where they are until the end. False if there is no memory.
  bool begin(const CallDescription& call);
  /// Does what can be done now; whether anything was.
  bool step();
  [[nodiscard]] bool is_done() const;
  [[nodiscard]] Outcome outcome() const;

 private:
  CallDescription call_;
  Source* source_ = nullptr;
  Aggregator* aggregator_ = nullptr;
};

/// This rank alone reads or writes what is its own: no messages, and the user's memory directly where it has no gaps.
Outcome access_alone(const CallDescription& call);

/// Bytes of rank `rank`'s access that lie before `position`, of a nest.
inline int64_t bytes_before(const Opening& opening, int64_t position) {
  const int64_t before = bytes_before(opening.nest, position) - opening.skip;
  return std::clamp<int64_t>(before, 0, opening.bytes);
}

}  // namespace headroom::collio
