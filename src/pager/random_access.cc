// See random_access.h.
#include "pager/random_access.h"

#include <algorithm>

#include "arena/arena.h"
#include "base/system_calls.h"

namespace headroom::pager {
namespace {

using arena::kBlockBytes;

constexpr int64_t kShortNs = 80'000;    // a busy machine adds half as much and more by itself
constexpr int kLongSure = 16;           // so many more are remembered
constexpr int kDoubt = 4;               // a fault in order weighs as much as so many at random
constexpr int kSparseFaults = 1 << 16;  // so long a sparse reader is remembered
constexpr uint32_t kKnownTurns = 16;    // so long it is remembered that blocks were read page by page
constexpr uint64_t kAskedAgain = 8;     // one block in so many
constexpr uint64_t kWholeAhead = 32;    // blocks

uint64_t bit_of(uint32_t page) { return uint64_t{1} << page; }

/// A rank whose random accesses all fall on an eighth of what there is room for is better served with whole blocks: they stay.
int blocks_of_an_eighth(const MemoryView& memory) { return static_cast<int>(memory.share() / kBlockBytes / 8); }

}  // namespace

bool RandomAccess::open(uint64_t blocks) {
  notes_ = static_cast<Notes*>(base::reserve_memory(blocks * sizeof(Notes)));
  return notes_ != nullptr;
}

bool RandomAccess::goes_on(uint64_t block, uint32_t page) const {
  const Notes& known = notes_[block];
  return recent_pages_.has_near(block * (kBlockBytes / arena::kPageBytes) + page, 1) ||
         (known.was_next && page == known.last_page + 1U);
}

/// Whether so many of the block's pages are read alone in a turn that it would have been better to read it as a whole. That is
/// believed for some turns. Then a few blocks are asked again, by single reads; as long as some say so, it is believed of the
/// others, too, for longer than until these are asked the next time. (To ask all of them made every fifth pass of 8 ranks that
/// jump about two to three times as long.)
bool RandomAccess::is_jumped_about_in(uint64_t block, const MemoryView& memory) const {
  const Notes& known = notes_[block];
  const bool is_asked = (block * 0x9e3779b97f4a7c15U >> 32) % kAskedAgain == 0;  // as good as random
  return (was_in_last(kKnownTurns, known.many_in) || (!is_asked && was_in_last(2 * kKnownTurns, some_in_))) &&
         __builtin_popcountll(known.pages) >= memory.pages_worth_a_block();
}

bool RandomAccess::is_too_much(const MemoryView& memory) const {
  const auto bytes = static_cast<int64_t>(needed());
  return bytes + bytes / 8 > memory.for_one();
}

bool RandomAccess::is_better_whole(uint64_t block, const MemoryView& memory) const {
  return is_jumped_about_in(block, memory) && !was_in_last(kKnownTurns, too_many_in_) && !is_too_much(memory) &&
         memory.came_back() <= jumped_to_;
}

uint64_t RandomAccess::better_whole_behind(uint64_t block, const MemoryView& memory) const {
  const uint64_t end = std::min(block + 1 + kWholeAhead, memory.blocks());
  uint64_t next = block + 1;
  while (next < end && is_jumped_about_in(next, memory)) {
    ++next;
  }
  return next - block - 1;
}

uint64_t RandomAccess::needed() const { return jumped_to_ * kBlockBytes; }

void RandomAccess::note_asked(uint64_t block, uint32_t page) {
  recent_pages_.note(block * (kBlockBytes / arena::kPageBytes) + page);
}

void RandomAccess::note_page_read(uint64_t block, uint32_t page, const MemoryView& memory) {
  Notes& known = notes_[block];
  known.was_next = page == known.last_page + 1U;
  known.last_page = static_cast<uint16_t>(page);
  if (known.turn != turn_) {
    known.turn = turn_;
    known.pages = 0;
    jumped_to_ += known.whole_in != turn_ ? 1 : 0;
  }
  ((known.pages & bit_of(page)) != 0 ? came_back_ : read_once_) += 1;
  known.pages |= bit_of(page);
  if (__builtin_popcountll(known.pages) >= memory.pages_worth_a_block()) {
    known.many_in = turn_;
    some_in_ = turn_;
  }
}

bool RandomAccess::note_better_whole(uint64_t block) {
  Notes& known = notes_[block];
  if (known.whole_in == turn_) {
    return false;
  }
  known.whole_in = turn_;
  jumped_to_ += known.turn != turn_ ? 1 : 0;
  return true;
}

void RandomAccess::note_storage_fault(bool in_order, uint64_t computed_ns, const MemoryView& memory) {
  const bool random = !in_order && static_cast<int64_t>(computed_ns - computed_ns_) < kShortNs;
  computed_ns_ = computed_ns;
  sparse_faults_ -= sparse_faults_ > 0 ? 1 : 0;
  if (random) {
    sure_ = sureness_ == 0 ? std::max(blocks_of_an_eighth(memory), kLeastSure) : sure_;
    sureness_ = sureness_ < sure_ + kLongSure ? sureness_ + 1 : sureness_;
  } else {
    sureness_ = sureness_ > kDoubt ? sureness_ - kDoubt : 0;
  }
}

void RandomAccess::note_sparse_reader() {
  sparse_faults_ = kSparseFaults;
  room_is_wanted_ = true;
}

void RandomAccess::note_read_in_order() {
  sureness_ /= 2;
  sparse_faults_ /= 2;
}

void RandomAccess::begin_turn() {
  ++turn_;
  came_back_ = 0;
  read_once_ = 0;
  jumped_to_ = 0;
}

bool RandomAccess::take_wish_for_room() {
  const bool wanted = room_is_wanted_;
  room_is_wanted_ = false;
  return wanted;
}

}  // namespace headroom::pager
