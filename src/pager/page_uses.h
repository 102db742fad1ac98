// Decides whether pages that came alone and were used again should stay when others leave.
//
// They should if a page that was used again since it came is much likelier to be used once more than one that was not: some
// pages are hot then. Where accesses fall anywhere alike, both are equally likely; telling pages apart then costs faults and
// gains nothing. Both likelihoods are counted in a sample of blocks, of which all pages are hidden at each visit.
//
// Knows nothing of engines and stores. Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

class PageUses {
 public:
  /// Whether a block is one of the sample.
  static bool is_sampled(uint64_t block) { return (block * 0x9e3779b97f4a7c15U >> 32) % kOneIn == 0; }

  /// Notes, for a block of the sample, the pages that had been hidden, those of them that were used since, and those of all its
  /// pages that had been used again before.
  void note_visit(uint64_t hidden, uint64_t used, uint64_t proven);

  [[nodiscard]] bool some_are_hot() const;

 private:
  static constexpr uint64_t kOneIn = 8;  // blocks: what it costs to see uses is then an eighth of what it may gain
  struct Pages {
    uint64_t hidden = 0;
    uint64_t used = 0;
  };
  Pages proven_;
  Pages others_;
};

}  // namespace headroom::pager
