// See replacement.h. Four lists in arrays indexed by block: passing and kept, each hidden or not, oldest first.
#include "pager/replacement.h"

#include <algorithm>

#include "base/system_calls.h"

namespace headroom::pager {
namespace {

constexpr uint64_t kLeastPassing = 4;       // blocks: as many as one instruction may need
constexpr uint64_t kPassingPart = 16;       // of the room is for blocks that pass once: sweeps do with so little
constexpr uint64_t kEnoughPassing = 16;     // to read ahead, where the part is less
constexpr uint64_t kMostOfLittle = 4;       // a part in so many, where there is little room
constexpr uint64_t kOfReader = 4;           // blocks: the one it is at, those that come next, and the one before
constexpr uint64_t kKeptHiddenPart = 4;     // of the kept ones are hidden, so that a use is seen
constexpr uint64_t kPassingHiddenPart = 2;  // of the passing ones, which leave sooner
constexpr double kGrowth = 1.0;             // for a block that came back
constexpr double kShrinking = 0.25;  // for one of the kept that was used: it takes four of them to undo one that came back
constexpr int kMostDisplaced = 8;    // kept blocks that make place for one that came back
constexpr uint64_t kBeginning = 16;  // memory is full when more than this part of all blocks is elsewhere
constexpr uint64_t kGroup = 16;      // blocks that are chosen together
constexpr int kMostLooks = 64;       // at hidden ones for one that is not chosen, so that a fault stays short
constexpr uint32_t kMuchOlder = 4;   // times
constexpr int kSeenTogether = 8;     // blocks; half a group

/// Whether an access that goes over blocks in order comes from one to the other, or back.
bool are_neighbours(uint32_t one, uint32_t other) { return one + 1 == other || other + 1 == one; }

/// The same number for all blocks of a group, as good as random.
uint32_t lot_of(uint64_t block) {
  const uint64_t group = block / kGroup + 1;
  return static_cast<uint32_t>(((group * 0x9e3779b97f4a7c15U) ^ (group >> 7)) * 0xbf58476d1ce4e5b9U >> 32);
}

}  // namespace

bool Replacement::open(uint64_t blocks) {
  blocks_ = static_cast<Block*>(base::reserve_memory(blocks * sizeof(Block)));
  return blocks_ != nullptr;
}

/// How long the passing queue should be where there is room for `room` blocks.
double Replacement::passing_target(uint64_t room) const {
  const uint64_t part = room / kPassingPart;
  const uint64_t enough = std::min<uint64_t>(room / kMostOfLittle, kEnoughPassing);
  uint64_t larger = std::max(part, enough);
  larger = std::max(larger, readers_ * kOfReader);
  const double least = static_cast<double>(std::max(larger, kLeastPassing));
  const double most = static_cast<double>(room) / 2;
  return std::min(least + grown_, most);
}

void Replacement::append(uint32_t block, Place place) {
  List& list = lists_[place];
  Block& entry = blocks_[block];
  entry.next = kNoBlock;
  entry.previous = list.tail;
  entry.place = place;
  entry.listed = true;
  entry.shown = false;
  (list.tail != kNoBlock ? blocks_[list.tail].next : list.head) = block;
  list.tail = block;
  ++list.count;
}

void Replacement::prepend(uint32_t block, Place place) {
  List& list = lists_[place];
  Block& entry = blocks_[block];
  entry.next = list.head;
  entry.previous = kNoBlock;
  entry.place = place;
  entry.listed = true;
  entry.shown = false;
  (list.head != kNoBlock ? blocks_[list.head].previous : list.tail) = block;
  list.head = block;
  ++list.count;
}

void Replacement::unlink(uint64_t block) {
  Block& entry = blocks_[block];
  List& list = lists_[entry.place];
  (entry.previous != kNoBlock ? blocks_[entry.previous].next : list.head) = entry.next;
  (entry.next != kNoBlock ? blocks_[entry.next].previous : list.tail) = entry.previous;
  --list.count;
  entry.listed = false;
}

/// Makes room among the kept blocks for one that was last used at `last_used`: the kept block that has been hidden in vain for
/// longer passes on, and so do those that have been for much longer. False if there is none.
bool Replacement::displace_kept(uint64_t last_used) {
  if (last_used == 0) {
    return false;
  }
  int displaced = 0;
  while (displaced < kMostDisplaced && lists_[kKeptHidden].head != kNoBlock) {
    const uint32_t oldest = lists_[kKeptHidden].head;
    const uint64_t hidden_at = blocks_[oldest].hidden_at;
    const bool much_older = now_ - hidden_at >= uint64_t{kMuchOlder} * (now_ - last_used);
    if (hidden_at >= last_used || (displaced > 0 && !much_older)) {
      break;
    }
    const bool shown = blocks_[oldest].shown;
    unlink(oldest);
    prepend(oldest, kPassingHidden);
    blocks_[oldest].shown = shown;
    ++displaced;
  }
  return displaced > 0;
}

/// Whether the block's lot is among the smallest, of as many blocks as are resident.
bool Replacement::is_chosen(uint64_t block) const { return lot_of(block) * known_ >> 32 < count(); }

/// Makes room among the kept blocks for one that is new, in place of one that was hidden in vain and is not chosen.
bool Replacement::displace_unchosen() {
  for (int looks = 0; looks < kMostLooks && lists_[kKeptHidden].head != kNoBlock; ++looks) {
    const uint32_t oldest = lists_[kKeptHidden].head;
    const bool shown = blocks_[oldest].shown;
    unlink(oldest);
    if (!is_chosen(oldest)) {
      prepend(oldest, kPassingHidden);
      blocks_[oldest].shown = shown;
      return true;
    }
    append(oldest, kKept);
  }
  return false;
}

void Replacement::expect(uint64_t block, bool ahead) {
  blocks_[block].ahead = ahead;
  coming_ += blocks_[block].coming ? 0 : 1;
  blocks_[block].coming = true;
}

void Replacement::forget(uint64_t block) {
  left_again_ -= blocks_[block].came_back_at > turn_began_ && !blocks_[block].listed ? 1 : 0;
  blocks_[block].came_back_at = 0;
  if (blocks_[block].used_at != 0) {
    blocks_[block].used_at = 0;
    --known_;
  }
}

void Replacement::loaded(uint64_t block, bool whole) {
  const auto number = static_cast<uint32_t>(block);
  const uint64_t last_used = blocks_[block].used_at;
  coming_ -= blocks_[block].coming ? 1 : 0;
  blocks_[block].coming = false;
  ++now_;
  if (whole && last_used > turn_began_) {
    const bool again = blocks_[block].came_back_at > turn_began_;
    came_back_ += again ? 1 : 0;
    left_again_ -= again ? 1 : 0;
    blocks_[block].came_back_at = now_;
  }
  blocks_[block].used_at = now_;
  known_ += last_used == 0 ? 1 : 0;
  if (!whole) {
    left_again_ -= blocks_[block].came_back_at > turn_began_ ? 1 : 0;  // remove() has counted it
    append(number, kKept);
    return;
  }
  if (last_used == 0 && known_ > count() + known_ / kBeginning) {
    append(number, is_chosen(block) && displace_unchosen() ? kKept : kPassing);
    return;
  }
  if (displace_kept(last_used)) {
    grown_ = passing_target(count()) < static_cast<double>(count()) / 2 ? grown_ + kGrowth : grown_;
    append(number, kKept);
    return;
  }
  append(number, static_cast<double>(passing()) < passing_target(count()) ? kPassing : kKept);
}

void Replacement::begin_turn() {
  turn_began_ = now_;
  came_back_ = 0;
  left_again_ = 0;
}

void Replacement::remove(uint64_t block) {
  left_again_ += blocks_[block].came_back_at > turn_began_ ? 1 : 0;
  unlink(block);
}

void Replacement::returned(uint64_t block) {
  const Place before = blocks_[block].place;
  left_again_ -= blocks_[block].came_back_at > turn_began_ ? 1 : 0;
  append(static_cast<uint32_t>(block), before == kKept || before == kKeptHidden ? kKept : kPassing);
}

void Replacement::used(uint64_t block) {
  const Block& entry = blocks_[block];
  if (!is_in_hidden_place(block)) {
    return;
  }
  ++now_;
  const auto number = static_cast<uint32_t>(block);
  const uint64_t last_used = entry.used_at;
  const bool was_kept = entry.place == kKeptHidden;
  const bool again = !entry.ahead;
  const uint32_t next = entry.next;
  blocks_[block].ahead = false;
  unlink(block);
  if (was_kept) {
    grown_ = grown_ > kShrinking ? grown_ - kShrinking : 0;
    append(number, kKept);
    used_with_first(number, next);
  } else {
    append(number, again && displace_kept(last_used) ? kKept : kPassing);
  }
  blocks_[block].used_at = now_;
}

void Replacement::unneeded(uint64_t block) {
  if (blocks_[block].listed) {
    unlink(block);
    prepend(static_cast<uint32_t>(block), kPassingHidden);
  }
}

void Replacement::visited(uint64_t block) {
  if (blocks_[block].listed) {
    unlink(block);
  } else {
    left_again_ -= blocks_[block].came_back_at > turn_began_ ? 1 : 0;  // remove() has counted it
  }
  append(static_cast<uint32_t>(block), kKept);
}

void Replacement::move_behind_others(uint64_t block) {
  // Among the kept ones, whatever it was: were all that pass held, the others would never be looked at.
  unlink(block);
  append(static_cast<uint32_t>(block), kKept);
  ++looked_in_vain_;
}

uint32_t Replacement::next_victim() const {
  const auto first_of = [this](Place hidden, Place seen) {
    return lists_[hidden].head != kNoBlock ? lists_[hidden].head : lists_[seen].head;
  };
  const uint32_t of_passing = first_of(kPassingHidden, kPassing);
  const uint32_t of_kept = first_of(kKeptHidden, kKept);
  const bool enough_pass = static_cast<double>(passing()) > passing_target(count()) / 2;
  const bool kept_cannot_leave = looked_in_vain_ >= kept();
  return of_passing != kNoBlock && (enough_pass || of_kept == kNoBlock || kept_cannot_leave) ? of_passing : of_kept;
}

uint32_t Replacement::hide_next(Place from, Place to) {
  const uint32_t block = lists_[from].head;
  unlink(block);
  append(block, to);
  blocks_[block].hidden_at = now_;
  return block;
}

/// The neighbours that were used after `first`, which is hidden now, count as hidden with it.
void Replacement::hide_with_first(uint32_t first) {
  uint32_t last = first;
  for (int together = 1; together < kSeenTogether; ++together) {
    const uint32_t next = lists_[kKept].head;
    if (next == kNoBlock || !are_neighbours(last, next) || next / kGroup != first / kGroup) {
      return;
    }
    last = hide_next(kKept, kKeptHidden);
    blocks_[last].shown = true;
  }
}

/// `first` was used, and so are those that were hidden with it, of which `next` is the first.
void Replacement::used_with_first(uint32_t first, uint32_t next) {
  while (next != kNoBlock && blocks_[next].shown && are_neighbours(first, next)) {
    first = next;
    next = blocks_[first].next;
    unlink(first);
    append(first, kKept);
    blocks_[first].used_at = ++now_;
  }
}

uint32_t Replacement::next_to_hide() {
  if (lists_[kPassing].head != kNoBlock && lists_[kPassingHidden].count < (passing() - coming_) / kPassingHiddenPart) {
    return hide_next(kPassing, kPassingHidden);
  }
  if (lists_[kKept].head != kNoBlock && lists_[kKeptHidden].count < kept() / kKeptHiddenPart) {
    const uint32_t first = hide_next(kKept, kKeptHidden);
    hide_with_first(first);
    return first;
  }
  return kNoBlock;
}

void Replacement::could_not_hide(uint32_t block) {
  uint32_t last = block;
  uint32_t next = blocks_[block].next;
  while (next != kNoBlock && blocks_[next].shown && are_neighbours(last, next)) {
    last = next;
    next = blocks_[last].next;
    unlink(last);
    prepend(last, kKept);  // the next ones to be hidden
  }
}

bool Replacement::is_in_hidden_place(uint64_t block) const {
  const Block& entry = blocks_[block];
  return entry.listed && (entry.place == kPassingHidden || entry.place == kKeptHidden);
}

bool Replacement::is_hidden(uint64_t block) const { return is_in_hidden_place(block) && !blocks_[block].shown; }

bool Replacement::may_leave_together(uint64_t one, uint64_t other) const {
  return blocks_[one].listed && blocks_[other].listed && blocks_[one].place / 2 == blocks_[other].place / 2 &&
         (!is_in_hidden_place(one) || is_in_hidden_place(other));
}

uint64_t Replacement::count() const { return passing() - coming_ + kept(); }

uint32_t Replacement::first() const {
  for (const List& list : lists_) {
    if (list.head != kNoBlock) {
      return list.head;
    }
  }
  return kNoBlock;
}

uint32_t Replacement::after(uint32_t block) const {
  if (blocks_[block].next != kNoBlock) {
    return blocks_[block].next;
  }
  for (int place = blocks_[block].place + 1; place < kPlaces; ++place) {
    if (lists_[place].head != kNoBlock) {
      return lists_[place].head;
    }
  }
  return kNoBlock;
}

uint64_t Replacement::room_ahead(uint64_t room) const {
  const auto ahead = static_cast<uint64_t>(passing_target(room) / 2);
  return std::max<uint64_t>(ahead, 2);
}

}  // namespace headroom::pager
