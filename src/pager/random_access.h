// Tells whether the program jumps about in its memory, and where whole blocks serve it better nevertheless.
//
// A fault counts as random if it continues no stream and the program has computed for less than kShortNs since its last fault
// on storage: the content that was read then was of little use.
//
// A rank that jumps about in memory that would fit if it had all of the node's does better to have it all for a turn: reading a
// block takes no longer than reading a few pages alone (store_speed.h), and everything else in it is free. So a block of which
// so many pages were read alone in a turn is better read as a whole, in that turn and the following ones. needed() says how
// much memory such blocks need together, so that ranks whose blocks do not fit side by side take turns (sched/preemption.h).
//
// Functions that ask change nothing, and note_...() tell it what was done. Knows nothing of engines, stores or blocks' words;
// fault_plan.h decides by it. Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

#include "pager/memory_view.h"
#include "pager/recent_places.h"

namespace headroom::pager {

class RandomAccess {
 public:
  /// Reserves addresses for the notes about each block; false if there are none.
  bool open(uint64_t blocks);

  /// Whether the program jumps about, as far as its last faults tell.
  [[nodiscard]] bool jumps_about() const { return sureness_ >= sure_ || sparse_faults_ > 0; }
  /// Whether a page beside this one was asked for a moment ago, or the pages of its block one after the other, three by now,
  /// however many other threads' faults were in between: then this is no jump. (By chance one random access in 4096 looks so.)
  [[nodiscard]] bool goes_on(uint64_t block, uint32_t page) const;
  /// Whether the block is better read as a whole, although the access is random.
  [[nodiscard]] bool is_better_whole(uint64_t block, const MemoryView& memory) const;
  /// Whether it were, but what the program jumps about in would not stay until the turn ends, if this rank had all the memory.
  [[nodiscard]] bool is_better_whole_but_too_much(uint64_t block, const MemoryView& memory) const {
    return is_jumped_about_in(block, memory) && is_too_much(memory);
  }
  /// Whether it was read as a whole for that reason in this turn.
  [[nodiscard]] bool was_better_whole(uint64_t block) const { return notes_[block].whole_in == turn_; }
  /// How many blocks behind that one are better read as a whole, too.
  [[nodiscard]] uint64_t better_whole_behind(uint64_t block, const MemoryView& memory) const;
  /// How much memory the blocks take that it jumps about in, in this turn; bytes.
  [[nodiscard]] uint64_t needed() const;
  /// How often in this turn a page was read alone that had been before in it, and how many different ones were.
  [[nodiscard]] uint64_t pages_came_back() const { return came_back_; }
  [[nodiscard]] uint64_t pages_read_in_turn() const { return read_once_; }
  /// Whether a sparse reader was found lately.
  [[nodiscard]] bool expects_sparse_readers() const { return sparse_faults_ > 0; }
  /// Processor time of this process's threads but the pager's, as of the last fault on storage.
  [[nodiscard]] uint64_t computed_ns() const { return computed_ns_; }

  /// That page was asked for.
  void note_asked(uint64_t block, uint32_t page);
  /// A page is read alone.
  void note_page_read(uint64_t block, uint32_t page, const MemoryView& memory);
  /// A block is read as a whole because it is better; false if it was before in this turn.
  bool note_better_whole(uint64_t block);
  /// What it jumps about in was too much: that is believed for some turns.
  void note_too_much() { too_many_in_ = turn_; }
  /// There was a fault on storage; `in_order`: it continues a stream. `computed_ns`: the program's processor time until then.
  void note_storage_fault(bool in_order, uint64_t computed_ns, const MemoryView& memory);
  /// A sparse reader was found (sparse_readers.h): the next faults on storage, for some time, are better served by single
  /// pages, but for those that clearly go on in order.
  void note_sparse_reader();
  /// A block of single pages was read in order after all.
  void note_read_in_order();
  /// Pages that are counted from now on belong to another turn.
  void begin_turn();
  /// Takes the wish for room, if a sparse reader was found since this was called the last time: whole blocks that the reader
  /// has passed, and will use as little of again, are to make room for the pages of others.
  bool take_wish_for_room();

 private:
  static constexpr int kLeastSure = 16;
  /// Of a block: the pages that were read alone in that turn, the last turn in which these were many, the last one in which the
  /// block was read as a whole instead, and the page that was read alone last, and whether it was the one behind that before.
  struct Notes {
    uint32_t turn;
    uint32_t many_in;
    uint32_t whole_in;
    uint16_t last_page;
    bool was_next;
    uint64_t pages;
  };

  [[nodiscard]] bool was_in_last(uint32_t turns, uint32_t turn) const { return turn != 0 && turn_ - turn < turns; }
  [[nodiscard]] bool is_jumped_about_in(uint64_t block, const MemoryView& memory) const;
  [[nodiscard]] bool is_too_much(const MemoryView& memory) const;

  Notes* notes_ = nullptr;
  uint32_t turn_ = 1;
  uint64_t came_back_ = 0;
  uint64_t read_once_ = 0;
  uint64_t jumped_to_ = 0;    // blocks of which pages were read alone in the turn, or that were read as a whole instead
  uint32_t too_many_in_ = 0;  // the last turn in which these did not fit in memory
  uint32_t some_in_ = 0;      // the last turn in which some block's pages were many
  int sureness_ = 0;          // random faults in excess of others
  int sure_ = kLeastSure;     // so many are enough to believe it
  int sparse_faults_ = 0;     // so many on storage are expected to be those of sparse readers
  bool room_is_wanted_ = false;
  uint64_t computed_ns_ = 0;
  RecentPlaces recent_pages_;
};

}  // namespace headroom::pager
