// See working_set.h.
#include "sched/working_set.h"

#include <algorithm>

#include "pager/pager.h"

namespace headroom::sched {
namespace {

constexpr int64_t kLeast = 8;  // of the resident memory, one part in so many
constexpr uint32_t kMostDoublings = 6;

}  // namespace

void WorkingSet::turn_ended(int64_t resident, int64_t came_back, int64_t left_again) {
  if (came_back > resident / pager::kPartThatMayComeBack) {
    expected_ = resident + left_again;
    failed_ += failed_ < kMostDoublings ? 1 : 0;
    turns_to_wait_ = 1U << failed_;
    return;
  }
  if (turns_to_wait_ > 0) {
    --turns_to_wait_;
    return;
  }
  const int64_t enough = expected_ > 0 && expected_ < resident ? expected_ : resident;
  const int64_t least = resident / kLeast;
  expected_ = std::max(enough / 2, least);
}

}  // namespace headroom::sched
