// The choice of the resident blocks that leave first. Scans do not flush memory: a sweep over more than there is room for,
// again and again, keeps what fits and reads the rest, where first in, first out and the least recently used would read
// everything.
//
// As in LIRS (Jiang and Zhang, SIGMETRICS 2002) a block is judged by the time between its last two uses, not by the time since
// the last. Most of memory belongs to *kept* blocks; newcomers enter a short queue of *passing* ones and leave from its head. A
// block that comes back sooner than some kept block was last used takes that one's place.
//
// Blocks that were loaded while there was room are kept from the start. When there is none left, blocks that are loaded for the
// first time take the place of some of these, so that the kept blocks are spread evenly over all that were ever used: groups of
// blocks draw lots (a hash), and those with the smallest are kept, as many as there is room for. A sweep then meets blocks in
// memory and blocks that must be read by turns, and the disk works while the program computes. If the kept blocks lay in one
// piece, disk and program would work one after the other.
//
// Uses are seen only where they fault, so the oldest quarter of the kept blocks and the older half of the passing ones are
// *hidden* from the program: one that is still in use faults, for microseconds instead of a transfer, and is known to be. How
// long a kept block has been hidden in vain is a lower bound for the time since its last use. Time is counted in uses seen. Of
// kept neighbours that were used one after the other only the first is hidden: a reader that goes over them again comes there
// first, and its use is that of the others. (A sweep over twice the memory has as many kept blocks as it reads, and to hide and
// show each was nearly half of the mapping work.)
//
// The passing queue begins at a sixteenth of memory. It grows while blocks come back that had passed through too fast (programs
// that work in a window that moves), and shrinks when hidden kept blocks turn out to be in use.
//
// Knows nothing of engines, stores or holds. Used by the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

inline constexpr uint32_t kNoBlock = UINT32_MAX;

class Replacement {
 public:
  /// Reserves addresses for `blocks` blocks; false if there are none. Costs memory only as far as blocks are used.
  bool open(uint64_t blocks);

  /// The block has got its memory, because it is used; or (not `whole`) some pages of it have.
  void loaded(uint64_t block, bool whole = true);
  /// The block will get its memory ahead of a use that is likely (or not ahead of it): the first use seen is then not a second.
  void expect(uint64_t block, bool ahead = true);
  /// A block whose eviction was given up, or that was written and stays, is back where it was; not a use.
  void returned(uint64_t block);
  /// A resident block was used (it faulted).
  void used(uint64_t block);
  /// The block's content is given up: from its next use on it counts as another block. It must not be listed.
  void forget(uint64_t block);
  /// Uses from now on are the turn's.
  void begin_turn();
  /// How often in this turn blocks came back, having left in it, that had done so before: they are needed all the time. (A turn
  /// in which everything is gone over twice is rather two: a rank need not have waited in between.)
  [[nodiscard]] uint64_t came_back() const { return came_back_; }
  /// How many of the blocks that came back at least once have left again.
  [[nodiscard]] uint64_t left_again() const { return left_again_; }
  /// The block leaves, or is on its way out.
  void remove(uint64_t block);
  /// The block will not be used for long: it leaves first.
  void unneeded(uint64_t block);
  /// Some of the block's memory has left, or none could: it is kept, and the last to be looked at again.
  void visited(uint64_t block);
  /// The block cannot leave now: others first.
  void move_behind_others(uint64_t block);

  /// A search for blocks that can leave begins: none is known yet that cannot.
  void begin_looking() { looked_in_vain_ = 0; }
  /// How many blocks could leave, as far as the last look knows.
  [[nodiscard]] uint64_t can_leave() const { return looked_in_vain_ < count() ? count() - looked_in_vain_ : 0; }
  /// The block to be evicted next; kNoBlock if there is none. Removes nothing.
  [[nodiscard]] uint32_t next_victim() const;
  /// A block that should be hidden from the program, to learn whether it is in use; counts as hidden from now on. kNoBlock if
  /// enough are.
  uint32_t next_to_hide();
  /// A block that next_to_hide() has named could not be hidden: it says nothing of the use of others.
  void could_not_hide(uint32_t block);

  [[nodiscard]] bool is_listed(uint64_t block) const { return blocks_[block].listed; }
  /// Whether `block` was to be hidden and has not been used since.
  [[nodiscard]] bool is_hidden(uint64_t block) const;
  /// Whether `other` may leave with `one`: both are kept, or both are passing, and it is as likely to be unused.
  [[nodiscard]] bool may_leave_together(uint64_t one, uint64_t other) const;
  [[nodiscard]] uint64_t count() const;
  /// How many blocks were ever loaded and are not forgotten: all that have been touched, wherever they are now.
  [[nodiscard]] uint64_t known() const { return known_; }

  /// All resident blocks in the order in which they would leave: the first, and the one after another; kNoBlock at the end.
  [[nodiscard]] uint32_t first() const;
  [[nodiscard]] uint32_t after(uint32_t block) const;

  /// So many readers go on side by side now: the passing queue must hold the block that each is at, and those that it comes to
  /// next.
  void serve_readers(uint64_t count) { readers_ = count; }
  /// How far a reader may read ahead, in blocks, so that none leaves before its use, if there is room for `room` blocks.
  [[nodiscard]] uint64_t room_ahead(uint64_t room) const;

 private:
  enum Place : uint8_t { kPassingHidden, kPassing, kKeptHidden, kKept, kPlaces };
  struct Block {
    uint32_t next;
    uint32_t previous;
    uint64_t used_at;    // 0: never. (32 bits would be over after 2 days at 3 GB/s.)
    uint64_t hidden_at;  // while it is hidden
    uint64_t came_back_at;
    Place place;  // where it is listed, or was last: returned() puts it there again
    bool listed;
    bool ahead;   // read ahead, and not seen in use
    bool coming;  // expected, and not loaded yet
    bool shown;   // in a hidden place, but not hidden: the block before it in the list is, for both
  };
  struct List {
    uint32_t head = kNoBlock;
    uint32_t tail = kNoBlock;
    uint64_t count = 0;
  };

  /// With those that are on their way, whose room is taken.
  [[nodiscard]] uint64_t passing() const { return lists_[kPassing].count + lists_[kPassingHidden].count + coming_; }
  [[nodiscard]] uint64_t kept() const { return lists_[kKept].count + lists_[kKeptHidden].count; }
  [[nodiscard]] double passing_target(uint64_t room) const;
  void unlink(uint64_t block);
  void append(uint32_t block, Place place);
  uint32_t hide_next(Place from, Place to);
  void hide_with_first(uint32_t first);
  void used_with_first(uint32_t first, uint32_t next);
  void prepend(uint32_t block, Place place);
  [[nodiscard]] bool is_in_hidden_place(uint64_t block) const;
  bool displace_kept(uint64_t last_used);
  [[nodiscard]] bool is_chosen(uint64_t block) const;
  bool displace_unchosen();

  Block* blocks_ = nullptr;
  List lists_[kPlaces];
  uint64_t now_ = 0;
  uint64_t turn_began_ = 0;
  uint64_t came_back_ = 0;
  uint64_t left_again_ = 0;
  uint64_t coming_ = 0;
  uint64_t looked_in_vain_ = 0;
  uint64_t known_ = 0;    // blocks that were ever loaded, and are not forgotten
  uint64_t readers_ = 0;  // that go on side by side
  double grown_ = 0;      // how much longer the passing queue is than at least
};

}  // namespace headroom::pager
