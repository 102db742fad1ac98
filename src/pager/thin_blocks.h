// Decides which blocks of those that came whole are to be judged page by page, since few of their pages are used.
//
// Where small objects of all kinds lie side by side (a heap of Python's, say), a block that is in use has many pages that are
// not: whole blocks then keep twice the memory that pages would. To see which pages are used costs a fault for each, so it is
// tried with one block of a group of neighbours, which mostly hold things of one kind; if few of its pages were used, all
// blocks of the group are looked at in this way.
//
// Knows nothing of engines and stores. Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

class ThinBlocks {
 public:
  /// Reserves addresses for notes about so many blocks; false if there are none.
  bool open(uint64_t blocks);

  /// Decides whether the pages of that block, which is in use and whole, are to be surveyed, and notes the use.
  bool choose_to_survey(uint64_t block);
  /// What was known of groups that these blocks cover whole is not true any more.
  void forget(uint64_t first, uint64_t count);
  /// So many pages of a block were used.
  void note_used(uint64_t block, int pages);

  /// Whether blocks beside that one, or itself, were found to be used in few pages.
  [[nodiscard]] bool is_expected_thin(uint64_t block) const;

  /// Whether a block is better kept page by page if so many of its pages are used.
  static bool is_thin(int pages) { return pages <= kMostOfThin; }
  /// Whether a block of which these pages were used, and no others, is probably being gone over in order.
  static bool is_in_order(uint64_t pages);

 private:
  static constexpr int kMostOfThin = 24;  // a block of which half has come in pages is filled (single_pages.cc)

  /// What is known of neighbours.
  struct Group {
    uint8_t used;  // pages of a block, as a mean; 0: not known
    uint8_t seen;  // uses of blocks since one of them was surveyed
  };
  Group* groups_ = nullptr;
  uint64_t known_ = 0;       // groups
  uint64_t known_thin_ = 0;  // of these
};

}  // namespace headroom::pager
