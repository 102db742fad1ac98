// Decides how content that a fault asks for comes from storage: the page alone, or its block, and what with it. Deciding
// changes nothing; fault.cc and single_pages.cc do what the plan says, and tell the policy (random_access.h) so.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

#include "pager/random_access.h"

namespace headroom::pager {

inline constexpr uint32_t kWholeBlock = UINT32_MAX;

/// A fault, or a holder, that asks for content.
struct Asked {
  uint64_t block;
  uint32_t page;          // kWholeBlock: all of it
  bool in_stream;         // a sequential reader comes here (streams.h), and the block is not hollow
  bool pages_come_alone;  // the engine can map single pages
};

/// What is known of a block of which nothing is in memory.
struct StoredBlock {
  bool is_hollow;     // few of its pages were ever touched (hollow_blocks.h)
  bool page_is_zero;  // the page was not
  bool is_thin;       // few of its pages are used, by what is known of its neighbours (thin_blocks.h)
};

/// What is known of a block of which single pages are in memory, but not the one that is asked for.
struct PartOfBlock {
  int pages;          // that are here, or on their way
  bool page_is_zero;  // never touched
};

struct Plan {
  bool whole;             // the block comes, or all that it lacks; else the page
  bool jumps_about;       // whole since so much of it is asked for at random
  bool too_much;          // it would, but all such blocks together do not fit
  bool goes_on;           // the reader goes over it in order after all
  bool half_is_here;      // whole since so many pages came alone
  uint64_t blocks_ahead;  // that are to come with it
};

/// For a block on storage.
Plan plan_stored(const Asked& asked, const StoredBlock& block, const RandomAccess& random, const MemoryView& memory);
/// For a block of which single pages are here.
Plan plan_missing_page(const Asked& asked, const PartOfBlock& part, const RandomAccess& random, const MemoryView& memory);

}  // namespace headroom::pager
