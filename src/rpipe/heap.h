// The heap of one direction of a pipe: which of its units are whose. The writer alone has this; the memory itself is elsewhere.
//
// A heap is a row of chunks, each of some units of 64 bytes, free or used. A chunk that is given back is joined with free
// neighbours at once, so two free chunks never touch. Free chunks are in a list, the last freed first; each policy goes through
// the whole list:
//
//   first fit   the lowest address that fits: memory that was used lately and lies low is used again, so it is warm
//   next fit    the lowest address at or behind where the last one ended, then the lowest: walks through the heap
//   best fit    the smallest chunk that fits; of equal ones the lowest
//   worst fit   the largest chunk; of equal ones the lowest
//
// The first and the last unit of a chunk know its size (boundary tags, Knuth 1.2.5), so neighbours are found in one step. The
// tables are reserved for the limit and populated as the heap grows: 16 bytes for each end of a chunk.
//
// Not thread-safe. Invariants (is_consistent()): 1 the chunks fill the heap without gaps; 2 no two free ones touch; 3 the list
// has each free chunk once, and no other; 4 used_units() is the sum of the used ones.
#pragma once

#include <cstdint>

#include "headroom/rpipe.h"

namespace headroom::rpipe {

inline constexpr uint64_t kUnitBytes = 64;

inline constexpr uint64_t units_of(uint64_t bytes) { return (bytes + kUnitBytes - 1) / kUnitBytes; }

class Heap {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  Heap() = default;
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  /// Reserves tables for so many units; the heap is empty. False if there are no addresses for them.
  bool open(uint32_t most_units, rpipe_policy policy);
  /// The heap has so many units from now on, no fewer than before and no more than at most.
  void grow(uint32_t units);
  /// The first unit of a used chunk of so many units (at least 1); kNone if there is none.
  uint32_t take(uint32_t units);
  /// Frees the chunk that begins at this unit, which is used.
  void give_back(uint32_t first);

  [[nodiscard]] uint32_t units() const { return units_; }
  [[nodiscard]] uint32_t most_units() const { return most_units_; }
  [[nodiscard]] uint32_t used_units() const { return used_units_; }
  [[nodiscard]] uint32_t largest_free() const;
  [[nodiscard]] bool is_consistent() const;

 private:
  struct Tag {       // of a chunk's first and of its last unit
    uint32_t units;  // of the chunk
    uint32_t free;
    uint32_t before, behind;  // in the list of free chunks; of a first unit
  };

  void set(uint32_t first, uint32_t units, bool free);
  void list(uint32_t first);
  void unlist(uint32_t first);
  [[nodiscard]] uint32_t find(uint32_t units) const;
  [[nodiscard]] bool is_better(uint32_t candidate, uint32_t than) const;

  Tag* tags_ = nullptr;
  uint32_t units_ = 0;
  uint32_t most_units_ = 0;
  uint32_t used_units_ = 0;
  uint32_t free_ = kNone;  // the list's first
  uint32_t rover_ = 0;     // behind what was taken last
  rpipe_policy policy_ = RPIPE_FIRST_FIT;
};

}  // namespace headroom::rpipe
