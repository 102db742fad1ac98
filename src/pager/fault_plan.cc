// See fault_plan.h.
#include "pager/fault_plan.h"

namespace headroom::pager {
namespace {

constexpr int kMostAlone = 32;  // pages: with half of a block, the rest costs as much as one more

}  // namespace

Plan plan_stored(const Asked& asked, const StoredBlock& block, const RandomAccess& random, const MemoryView& memory) {
  Plan plan = {.whole = true, .jumps_about = false, .goes_on = false, .half_is_here = false, .blocks_ahead = 0};
  const bool may_be_page = asked.page != kWholeBlock && asked.pages_come_alone && (block.is_hollow || !asked.in_stream);
  const bool few_are_used = block.is_hollow || block.page_is_zero || block.is_thin;
  if (may_be_page && few_are_used) {
    plan.whole = false;
  } else if (may_be_page && random.jumps_about() && !random.goes_on(asked.block, asked.page)) {
    plan.jumps_about = random.is_better_whole(asked.block, memory);
    plan.whole = plan.jumps_about;
  }
  if (plan.jumps_about || (plan.whole && random.was_better_whole(asked.block))) {
    plan.blocks_ahead = random.better_whole_behind(asked.block, memory);
  }
  return plan;
}

Plan plan_missing_page(const Asked& asked, const PartOfBlock& part, const RandomAccess& random, const MemoryView& memory) {
  const bool goes_on = random.goes_on(asked.block, asked.page);
  const bool half_is_here = part.pages >= kMostAlone;
  const bool jumps_about = !goes_on && !half_is_here && !part.page_is_zero && random.is_better_whole(asked.block, memory);
  return {.whole = goes_on || half_is_here || jumps_about,
          .jumps_about = jumps_about,
          .goes_on = goes_on,
          .half_is_here = half_is_here,
          .blocks_ahead = 0};
}

}  // namespace headroom::pager
