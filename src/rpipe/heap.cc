// See heap.h.
#include "rpipe/heap.h"

#include <algorithm>

#include "base/system_calls.h"

namespace headroom::rpipe {

Heap::~Heap() { base::give_back_memory(tags_, most_units_ * sizeof(Tag)); }

bool Heap::open(uint32_t most_units, rpipe_policy policy) {
  tags_ = static_cast<Tag*>(base::reserve_memory(most_units * sizeof(Tag)));
  most_units_ = tags_ == nullptr ? 0 : most_units;
  policy_ = policy;
  return tags_ != nullptr;
}

void Heap::set(uint32_t first, uint32_t units, bool free) {
  tags_[first].units = units;
  tags_[first].free = free ? 1 : 0;
  tags_[first + units - 1].units = units;
  tags_[first + units - 1].free = free ? 1 : 0;
}

void Heap::list(uint32_t first) {
  tags_[first].before = kNone;
  tags_[first].behind = free_;
  if (free_ != kNone) {
    tags_[free_].before = first;
  }
  free_ = first;
}

void Heap::unlist(uint32_t first) {
  const Tag& tag = tags_[first];
  (tag.before == kNone ? free_ : tags_[tag.before].behind) = tag.behind;
  if (tag.behind != kNone) {
    tags_[tag.behind].before = tag.before;
  }
}

void Heap::grow(uint32_t units) {
  if (units <= units_) {
    return;
  }
  uint32_t first = units_;
  uint32_t more = units - units_;
  if (first > 0 && tags_[first - 1].free != 0) {
    more += tags_[first - 1].units;
    first -= tags_[first - 1].units;
    unlist(first);
  }
  units_ = units;
  set(first, more, true);
  list(first);
}

bool Heap::is_better(uint32_t candidate, uint32_t than) const {
  const uint32_t size = tags_[candidate].units;
  const uint32_t other = tags_[than].units;
  switch (policy_) {
    case RPIPE_BEST_FIT:
      return size != other ? size < other : candidate < than;
    case RPIPE_WORST_FIT:
      return size != other ? size > other : candidate < than;
    case RPIPE_NEXT_FIT:
      return (candidate >= rover_) != (than >= rover_) ? candidate >= rover_ : candidate < than;
    default:
      return candidate < than;
  }
}

uint32_t Heap::find(uint32_t units) const {
  uint32_t best = kNone;
  for (uint32_t chunk = free_; chunk != kNone; chunk = tags_[chunk].behind) {
    if (tags_[chunk].units >= units && (best == kNone || is_better(chunk, best))) {
      best = chunk;
    }
  }
  return best;
}

uint32_t Heap::take(uint32_t units) {
  const uint32_t first = find(units);
  if (first == kNone) {
    return kNone;
  }
  unlist(first);
  const uint32_t left = tags_[first].units - units;
  set(first, units, false);
  if (left > 0) {
    set(first + units, left, true);
    list(first + units);
  }
  used_units_ += units;
  rover_ = first + units;
  return first;
}

void Heap::give_back(uint32_t first) {
  uint32_t units = tags_[first].units;
  used_units_ -= units;
  if (first > 0 && tags_[first - 1].free != 0) {
    const uint32_t before = first - tags_[first - 1].units;
    unlist(before);
    units += first - before;
    first = before;
  }
  if (first + units < units_ && tags_[first + units].free != 0) {
    unlist(first + units);
    units += tags_[first + units].units;
  }
  set(first, units, true);
  list(first);
}

uint32_t Heap::largest_free() const {
  uint32_t largest = 0;
  for (uint32_t chunk = free_; chunk != kNone; chunk = tags_[chunk].behind) {
    largest = std::max<uint32_t>(largest, tags_[chunk].units);
  }
  return largest;
}

bool Heap::is_consistent() const {
  uint32_t free_chunks = 0;
  uint32_t used = 0;
  bool before_was_free = false;
  uint32_t at = 0;
  while (at < units_) {
    const Tag& first = tags_[at];
    if (first.units == 0 || first.units > units_ - at) {
      return false;  // 1
    }
    const Tag& last = tags_[at + first.units - 1];
    const bool free = first.free != 0;
    if (last.units != first.units || last.free != first.free || (free && before_was_free)) {
      return false;  // 1, 2
    }
    free_chunks += free ? 1 : 0;
    used += free ? 0 : first.units;
    before_was_free = free;
    at += first.units;
  }
  uint32_t listed = 0;
  for (uint32_t chunk = free_; chunk != kNone && listed <= free_chunks; chunk = tags_[chunk].behind) {
    if (tags_[chunk].free == 0) {
      return false;  // 3
    }
    ++listed;
  }
  return listed == free_chunks && used == used_units_;  // 3, 4
}

}  // namespace headroom::rpipe
