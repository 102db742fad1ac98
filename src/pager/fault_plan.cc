// See fault_plan.h.
#include "pager/fault_plan.h"

namespace headroom::pager {
namespace {

constexpr int kMostAlone = 32;  // pages: with half of a block, the rest costs as much as one more

}  // namespace

Plan plan_stored(const Asked& asked, const StoredBlock& block, const RandomAccess& random, const MemoryView& memory) {
  Plan plan = {};
  plan.whole = true;
  const bool may_be_page = asked.page != kWholeBlock && asked.pages_come_alone && !asked.in_stream;
  const bool few_are_used = block.is_hollow || block.page_is_zero || block.is_thin;
  if (may_be_page && few_are_used) {
    plan.whole = false;
  } else if (may_be_page && random.jumps_about() && !random.goes_on(asked.block, asked.page)) {
    plan.jumps_about = random.is_better_whole(asked.block, memory);
    plan.too_much = !plan.jumps_about && random.is_better_whole_but_too_much(asked.block, memory);
    plan.whole = plan.jumps_about;
  }
  if (plan.jumps_about || (plan.whole && random.was_better_whole(asked.block))) {
    plan.blocks_ahead = random.better_whole_behind(asked.block, memory);
  }
  return plan;
}

Plan plan_missing_page(const Asked& asked, const PartOfBlock& part, const RandomAccess& random, const MemoryView& memory) {
  Plan plan = {};
  plan.goes_on = random.goes_on(asked.block, asked.page);
  plan.half_is_here = part.pages >= kMostAlone;
  if (!plan.goes_on && !plan.half_is_here && !part.page_is_zero) {
    plan.jumps_about = random.is_better_whole(asked.block, memory);
    plan.too_much = !plan.jumps_about && random.is_better_whole_but_too_much(asked.block, memory);
  }
  plan.whole = plan.goes_on || plan.half_is_here || plan.jumps_about;
  return plan;
}

}  // namespace headroom::pager
