// An aggregator's part: it fills windows with what the ranks write and has them written, or has them read and hands them out.
//
// There are two windows, so one is filled while the other is written. For each window it computes what of each rank's bytes
// lies there, and asks for it in turn, a few messages at a time; ranks whose pieces are a list say where the bytes that they
// send belong. The requests can change with each window: its size follows the memory that is left at that moment.
//
// After an error it asks on, for nothing: so the ranks' part ends as it would have.
#pragma once

#include "collio/call.h"
#include "collio/coverage.h"
#include "collio/file_worker.h"
#include "collio/user_memory.h"

namespace headroom::collio {

class Aggregator {
 public:
  static constexpr int kSlots = 2 * kStages;

  /// Slots from 0 on are its own. False if there is no memory.
  bool begin(const CallDescription& call, const Domain& domain);
  void end();
  bool step();
  [[nodiscard]] bool is_done() const;
  /// Sleeps until a window is read or written, if that is what it waits for.
  void wait_for_job();
  [[nodiscard]] const Outcome& outcome() const { return outcome_; }

 private:
  /// The bytes still to be asked of a rank.
  struct Rank {
    int64_t from;  // of a nest: bytes [from, until) of its access lie in this window
    int64_t until;
    int64_t next;  // of a list: where its next piece lies in the file
    bool asked;    // a batch of it is on its way
    bool is_list;
  };
  enum class State { kFree, kReading, kRead, kCurrent, kWriting };
  struct Window {
    State state;
    char* memory;
    int64_t begin;  // in the file
    int64_t end;
    Coverage coverage;
    FileJob job;
  };
  enum class Use { kNone, kNest, kList, kContentOfList };
  struct Stage {
    Use use;
    int rank;
    char* memory;
    char* place;  // where the content of a nest is: `memory`, or the window
    Ask ask;
  };

  bool finish_jobs();
  bool finish_stages();
  bool begin_window();
  bool ask_for_more();
  bool complete_window();
  void plan_window(Window& window);
  void enter_window(Window& window);
  void cover_window(Window& window, int64_t bytes, bool is_one_piece);
  void discard_rest();
  bool finish_stage(int index);
  void scatter_batch(const Stage& stage);
  void hand_out_batch(int index);
  bool ask_rank(int index, int rank);
  void ask_nest(int index, int rank);
  void ask_list(int index, int rank);
  void copy_own();
  void write(Window& window);
  void read(Window& window);
  void push_and_drop(FileJob& job);
  [[nodiscard]] bool has_more(int rank) const;
  [[nodiscard]] int64_t first_touched(int64_t position) const;
  [[nodiscard]] int64_t last_touched(int64_t end) const;
  Window& current() { return windows_[current_]; }

  const CallDescription* call_ = nullptr;
  Domain domain_ = {};
  Rank* ranks_ = nullptr;
  Window windows_[2] = {};
  Stage stages_[kStages] = {};
  char* memory_ = nullptr;  // of windows, stages and the scratch
  int64_t memory_bytes_ = 0;
  int64_t window_bytes_ = 0;
  int64_t position_ = 0;  // all before it in its part of the file is done, or in a window
  int current_ = -1;      // the window that is filled or handed out
  int ahead_ = -1;        // the one that is read meanwhile
  int turn_ = 0;          // the rank that is asked next
  int pending_ = 0;       // stages in use
  int64_t own_next_ = 0;  // of its own list
  bool has_lists_ = false;
  bool all_asked_ = false;  // nothing is left of the window, or of what is thrown away, but what lists may still say
  bool discards_ = false;
  int64_t dropped_begin_ = 0;  // of the last range that was pushed
  int64_t dropped_end_ = 0;
  UserStream own_{direct::Content{}};
  Outcome outcome_;
};

}  // namespace headroom::collio
