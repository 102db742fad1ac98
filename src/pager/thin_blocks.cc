// See thin_blocks.h.
#include "pager/thin_blocks.h"

#include <algorithm>

#include "base/system_calls.h"

namespace headroom::pager {
namespace {

constexpr uint64_t kBlocksOfGroup = 16;  // 4 MiB
constexpr uint8_t kUntilNext = 64;  // uses in a group of which most pages are used, from one block that is surveyed to the next
constexpr uint8_t kUntilFirst = 16;  // the same while the first one is being surveyed
constexpr uint64_t kFirst = 4;       // one group in so many is looked at while few are known to be thin
constexpr uint64_t kFew = 16;        // to find one group in so many thin is enough to look at all
constexpr int kInOrder = 8;          // pages, all neighbours: a fault for each is little beside reading the block

uint64_t lot_of(uint64_t group) { return group * 0x9e3779b97f4a7c15U >> 32; }  // as good as random

}  // namespace

bool ThinBlocks::open(uint64_t blocks) {
  groups_ = static_cast<Group*>(base::reserve_memory((blocks / kBlocksOfGroup + 1) * sizeof(Group)));
  return groups_ != nullptr;
}

bool ThinBlocks::choose_to_survey(uint64_t block) {
  if (is_expected_thin(block)) {
    return true;
  }
  Group& group = groups_[block / kBlocksOfGroup];
  const bool some_are_thin = known_thin_ * kFew > known_;
  if (group.used == 0 && !some_are_thin && lot_of(block / kBlocksOfGroup) % kFirst != 0) {
    return false;
  }
  const bool chosen = group.seen == 0;
  group.seen = static_cast<uint8_t>((group.seen + 1) % (group.used == 0 ? kUntilFirst : kUntilNext));
  return chosen;
}

bool ThinBlocks::is_expected_thin(uint64_t block) const {
  const Group& group = groups_[block / kBlocksOfGroup];
  return group.used != 0 && is_thin(group.used);
}

void ThinBlocks::note_used(uint64_t block, int pages) {
  Group& group = groups_[block / kBlocksOfGroup];
  const int before = group.used == 0 ? pages : group.used;
  known_ += group.used == 0 ? 1 : 0;
  known_thin_ -= is_expected_thin(block) ? 1 : 0;
  group.used = static_cast<uint8_t>(std::max((before + pages + 1) / 2, 1));
  known_thin_ += is_expected_thin(block) ? 1 : 0;
}

void ThinBlocks::forget(uint64_t first, uint64_t count) {
  const uint64_t end = (first + count) / kBlocksOfGroup;
  for (uint64_t group = (first + kBlocksOfGroup - 1) / kBlocksOfGroup; group < end; ++group) {
    known_ -= groups_[group].used != 0 ? 1 : 0;
    known_thin_ -= is_expected_thin(group * kBlocksOfGroup) ? 1 : 0;
    groups_[group] = {};
  }
}

bool ThinBlocks::is_in_order(uint64_t pages) {
  const int count = __builtin_popcountll(pages);
  return count >= kInOrder && pages >> __builtin_ctzll(pages) == UINT64_MAX >> (64 - count);
}

}  // namespace headroom::pager
