// See divided_blocks.h.
#include "pager/divided_blocks.h"

#include "pager/block_transitions.h"
#include "pager/forked_children.h"
#include "pager/huge_pages.h"
#include "pager/present_pages.h"
#include "pager/recent_places.h"
#include "pager/single_pages.h"
#include "pager/state.h"
#include "pager/thin_blocks.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using namespace arena;
using trace::Counter;

ThinBlocks thin_blocks;

constexpr uint64_t kNear = 4;  // blocks: what is read ahead of a walk does not fault
RecentPlaces recent_blocks;

bool is_walked_to(uint64_t block) { return recent_blocks.has_near(block, kNear); }

}  // namespace

void make_whole_again(uint64_t block) {
  // All of the view is taken away, so that from now on the block's word says what is mapped.
  state.engine->hide(view_of_block(*state.partition, block));
  const uint64_t dirty = pages_of(block).dirty != 0 ? kDirty : 0;
  pages_of(block) = {};
  set_state(block, 0, kResident | dirty);
  state.resident.visited(block);
}

bool open_divided_blocks(uint64_t blocks) { return thin_blocks.open(blocks); }

void note_visited_block(uint64_t block) { recent_blocks.note(block); }

bool divide_if_worth(uint64_t block) {
  const bool is_allowed = state.engine->kind() != base::EngineChoice::kSigsegv &&  // it cannot map single pages
                          view_of_block(*state.partition, block).bytes == kBlockBytes && is_given_to_all(block) &&
                          !is_walked_to(block);
  if (!is_allowed || !thin_blocks.choose_to_survey(block) || !set_apart(block)) {
    return false;
  }
  uint64_t before = 0;
  if (!make_transition(word_of(block), next::divide, before)) {
    return false;
  }
  Pages& pages = pages_of(block);
  pages = {};
  pages.present = kAllPages;
  pages.dirty = (before & kDirty) != 0 ? kAllPages : 0;
  pages.hidden = kAllPages;
  pages.asked = kAllPages;
  pages.surveyed = true;
  state.resident.visited(block);
  trace::count(Counter::kBlocksSurveyed);
  return true;
}

bool is_expected_thin(uint64_t block) { return thin_blocks.is_expected_thin(block) && !is_walked_to(block); }

void forget_thin_blocks(uint64_t first, uint64_t count) { thin_blocks.forget(first, count); }

bool join_if_worth(uint64_t block, uint32_t page) {
  const Pages& pages = pages_of(block);
  if (pages.present != kAllPages || pages_are_moving(block)) {
    return false;
  }
  const bool in_order = page != kWholeBlock && pages.surveyed && ThinBlocks::is_in_order(~pages.hidden | bit_of(page));
  if (in_order) {
    thin_blocks.note_used(block, static_cast<int>(kPagesOfBlock));
  }
  if (in_order || page == kWholeBlock) {
    make_whole_again(block);
    return true;
  }
  return false;
}

bool join_unless_thin(uint64_t block) {
  const int used = __builtin_popcountll(pages_of(block).present & ~pages_of(block).hidden);
  const bool is_cut_short = state.idle.load(std::memory_order_relaxed);
  if (ThinBlocks::is_thin(used)) {
    if (is_cut_short) {
      make_whole_again(block);
    }
    return is_cut_short;
  }
  thin_blocks.note_used(block, used);
  make_whole_again(block);
  return true;
}

void note_thin(uint64_t block, uint64_t used) {
  thin_blocks.note_used(block, __builtin_popcountll(used));
  pages_of(block).surveyed = false;
  trace::count(Counter::kBlocksThin);
}

void note_filled(uint64_t block, uint64_t present) { thin_blocks.note_used(block, __builtin_popcountll(present)); }

void join_if_all_are_here(uint64_t block) {
  if (state_of(word_of(block).load(std::memory_order_relaxed)) == kSinglePages) {
    (void)join_if_worth(block, kWholeBlock);
  }
}

}  // namespace headroom::pager
