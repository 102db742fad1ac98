// The table of extents: which run of pages lies where, and the free ones by their size. extents.h says what extents are; what
// becomes of them is decided in extents.cc. Not thread-safe; never evictable.
#pragma once

#include <cstdint>

namespace headroom::heap {

/// An entry that stands for no extent.
inline constexpr uint32_t kNoExtent = 0;

struct Extent {
  uint64_t first;  // page
  uint64_t pages;
  uint32_t next;  // in its bin, or in the list of unused entries
  uint32_t previous;
  bool used;
  bool kept;  // free, but its blocks are still claimed and populated
};

class ExtentTable {
 public:
  /// For a partition of so many pages; false if there is no memory for it.
  bool open(uint64_t pages);

  Extent& operator[](uint32_t entry) { return extents_[entry]; }
  /// The extent that begins or ends at `page`.
  [[nodiscard]] uint32_t at_end(uint64_t page) const { return extent_at_[page]; }
  /// The extent that contains `page`.
  [[nodiscard]] uint32_t containing(uint64_t page) const;

  /// An entry for an extent; kNoExtent if all are used.
  uint32_t take_entry();
  void give_entry_back(uint32_t entry);

  /// The extent lies at [first, first + pages) from now on.
  void place(uint32_t entry, uint64_t first, uint64_t pages);
  /// No extent begins or ends where this one did.
  void clear_ends(const Extent& extent);

  /// Lists the extent as free, kept or not as it says, or takes it out of its list.
  void list_as_free(uint32_t entry);
  void unlist(uint32_t entry);
  /// A free extent that has `pages` at a multiple of `alignment_pages`. The smallest of those looked at, of the smallest size
  /// that has any that fits.
  [[nodiscard]] uint32_t find_free(uint64_t pages, uint64_t alignment_pages, bool kept) const;
  /// Any free extent that is kept.
  [[nodiscard]] uint32_t any_kept() const;

 private:
  static constexpr int kBins = 40;
  static constexpr uint32_t kMostExtents = 1 << 20;

  uint32_t& bin_for(const Extent& extent);

  Extent* extents_ = nullptr;
  uint32_t* extent_at_ = nullptr;  // by page, at both ends of each
  uint32_t bins_[2][kBins] = {};   // of those that are not kept and of those that are
  uint32_t unused_entries_ = kNoExtent;
  uint32_t next_entry_ = 1;
};

/// The first page at a multiple of `alignment_pages` in the extent, or behind it.
inline uint64_t aligned_first(const Extent& extent, uint64_t alignment_pages) {
  return (extent.first + alignment_pages - 1) / alignment_pages * alignment_pages;
}

}  // namespace headroom::heap
