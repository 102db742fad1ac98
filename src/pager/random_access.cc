// See random_access.h.
#include "pager/random_access.h"

#include <time.h>

#include <algorithm>

#include "pager/recent_places.h"
#include "pager/shares.h"
#include "pager/single_pages.h"
#include "pager/state.h"
#include "pager/store_speed.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using namespace arena;
using trace::Counter;

constexpr int64_t kShortNs = 80'000;    // a busy machine adds half as much and more by itself
constexpr int kLeastSure = 16;          // random faults in excess of others
constexpr int kLongSure = 16;           // so many more are remembered
constexpr int kDoubt = 4;               // a fault in order weighs as much as so many at random
constexpr int kSparseFaults = 1 << 16;  // so long a sparse reader is remembered
constexpr uint32_t kKnownTurns = 16;    // so long it is remembered that blocks were read page by page
constexpr uint64_t kFewJumps = 8;       // to one in so many of the blocks that are here
constexpr uint64_t kAskedAgain = 8;     // one block in so many
constexpr uint64_t kWholeAhead = 32;    // blocks

/// Of a block: the pages that were read alone in that turn, the last turn in which these were many, the last one in which the
/// block was read as a whole instead, and the page that was read alone last, and whether it was the one behind that before.
struct ReadInTurn {
  uint32_t turn;
  uint32_t many_in;
  uint32_t whole_in;
  uint16_t last_page;
  bool was_next;
  uint64_t pages;
};

ReadInTurn* read_in_turn = nullptr;
uint32_t current_turn = 1;
uint64_t came_back = 0;    // pages that were read in this turn for the second time, or more
uint64_t read_once = 0;    // different pages read in it
uint64_t jumped_to = 0;    // blocks of which pages were read alone in it, or that were read as a whole instead
uint32_t jumped_in = 0;    // the last turn in which these were many
uint32_t too_many_in = 0;  // the last turn in which these did not fit in memory
uint32_t some_in = 0;      // the last turn in which that was found of some block
int sureness = 0;
bool room_is_wanted = false;
int sparse_faults = 0;  // so many on storage are expected to be those of sparse readers
int sure = kLeastSure;
uint64_t computed_ns = 0;  // at the last fault on storage
RecentPlaces recent_pages;

uint64_t bit_of(uint32_t page) { return uint64_t{1} << page; }

/// A rank whose random accesses all fall on an eighth of what there is room for is better served with whole blocks: they stay.
int faults_until_sure() {
  const auto blocks = static_cast<int>(share_of_memory() / kBlockBytes / 8);
  return std::max(blocks, kLeastSure);
}

bool was_in_last(uint32_t turns, uint32_t turn) { return turn != 0 && current_turn - turn < turns; }

/// Whether so many of the block's pages are read alone in a turn that it would have been better to read it as a whole. That is
/// believed for some turns. Then a few blocks are asked again, by single reads; as long as some say so, it is believed of the
/// others, too, for longer than until these are asked the next time. (To ask all of them made every fifth pass of 8 ranks that
/// jump about two to three times as long.)
bool is_jumped_about_in(uint64_t block) {
  const ReadInTurn& known = read_in_turn[block];
  const bool is_asked = (block * 0x9e3779b97f4a7c15U >> 32) % kAskedAgain == 0;  // as good as random
  return __builtin_popcountll(known.pages) >= pages_worth_a_block() &&
         (was_in_last(kKnownTurns, known.many_in) || (!is_asked && was_in_last(2 * kKnownTurns, some_in)));
}

void count_jump(bool to_another_block) {
  jumped_to += to_another_block ? 1 : 0;
  jumped_in = jumped_to > state.resident.count() / kFewJumps ? current_turn : jumped_in;
}

void note_whole_read(ReadInTurn& known) {
  if (known.whole_in != current_turn) {
    known.whole_in = current_turn;
    count_jump(known.turn != current_turn);
    state.needed_in_turn.store(static_cast<int64_t>(jumped_to * kBlockBytes), std::memory_order_relaxed);
    trace::count(Counter::kBlocksReadWhole);
  }
}

/// Whether all that it jumps about in would stay until the turn ends, if this rank had all the memory.
bool jumps_about_in_what_fits() {
  const auto needed = static_cast<int64_t>(jumped_to * kBlockBytes);
  if (needed + needed / 8 > memory_for_one()) {
    too_many_in = current_turn;
  }
  return (too_many_in == 0 || current_turn - too_many_in >= kKnownTurns) && state.resident.came_back() <= jumped_to;
}

}  // namespace

bool open_random_access(uint64_t blocks) {
  read_in_turn = static_cast<ReadInTurn*>(base::reserve_memory(blocks * sizeof(ReadInTurn)));
  return read_in_turn != nullptr;
}

bool note_asked_page(uint64_t block, uint32_t page) {
  const uint64_t number = block * (kBlockBytes / kPageBytes) + page;
  const bool beside = recent_pages.has_near(number, 1);
  recent_pages.note(number);
  return beside;
}

bool continues_in_block(uint64_t block, uint32_t page) {
  const ReadInTurn& known = read_in_turn[block];
  return known.was_next && page == known.last_page + 1U;
}

void note_page_read(uint64_t block, uint32_t page) {
  ReadInTurn& known = read_in_turn[block];
  known.was_next = page == known.last_page + 1U;
  known.last_page = static_cast<uint16_t>(page);
  if (known.turn != current_turn) {
    known.turn = current_turn;
    known.pages = 0;
    count_jump(known.whole_in != current_turn);
  }
  ((known.pages & bit_of(page)) != 0 ? came_back : read_once) += 1;
  known.pages |= bit_of(page);
  if (__builtin_popcountll(known.pages) >= pages_worth_a_block()) {
    known.many_in = current_turn;
    some_in = current_turn;
  }
}

bool choose_whole_read(uint64_t block) {
  if (!is_jumped_about_in(block) || !jumps_about_in_what_fits()) {
    return false;
  }
  note_whole_read(read_in_turn[block]);
  if (jumped_to * kBlockBytes > share_of_memory()) {
    start_wanting_all();
  }
  return true;
}

void prefer_single_pages() {
  sparse_faults = kSparseFaults;
  room_is_wanted = true;
}

bool take_wish_for_room() {
  const bool wanted = room_is_wanted;
  room_is_wanted = false;
  return wanted;
}

bool expects_sparse_readers() { return sparse_faults > 0; }

void doubt_random_access() {
  sureness /= 2;
  sparse_faults /= 2;
}

void begin_turn_of_pages() {
  ++current_turn;
  came_back = 0;
  read_once = 0;
  jumped_to = 0;
  state.needed_in_turn.store(0, std::memory_order_relaxed);
}

uint64_t pages_came_back() { return came_back; }
uint64_t pages_read_in_turn() { return read_once; }

uint64_t program_computed_ns() { return computed_ns; }

void note_storage_fault(bool in_order) {
  const uint64_t own = base::nanoseconds_of(CLOCK_THREAD_CPUTIME_ID);
  const uint64_t now = base::nanoseconds_of(CLOCK_PROCESS_CPUTIME_ID) - own;
  const bool random = !in_order && static_cast<int64_t>(now - computed_ns) < kShortNs;
  computed_ns = now;
  sparse_faults -= sparse_faults > 0 ? 1 : 0;
  if (random) {
    sure = sureness == 0 ? faults_until_sure() : sure;
    sureness = sureness < sure + kLongSure ? sureness + 1 : sureness;
  } else {
    sureness = sureness > kDoubt ? sureness - kDoubt : 0;
  }
}

bool choose_single_page(uint64_t block, uint32_t page, bool few_are_used) {
  const bool continues = page != kWholeBlock && (note_asked_page(block, page) || continues_in_block(block, page));
  if (page == kWholeBlock || state.engine->kind() == base::EngineChoice::kSigsegv) {
    return false;
  }
  const bool jumps_about = !continues && (sureness >= sure || sparse_faults > 0);
  return few_are_used || (jumps_about && !choose_whole_read(block));
}

uint64_t choose_blocks_ahead(uint64_t block) {
  const uint64_t committed = state.partition->committed.load(std::memory_order_relaxed) / kBlockBytes;
  uint64_t count = 0;
  if (read_in_turn[block].whole_in == current_turn) {
    for (uint64_t next = block + 1; count < kWholeAhead && next < committed && is_jumped_about_in(next); ++next, ++count) {
      note_whole_read(read_in_turn[next]);
    }
  }
  return count;
}

}  // namespace headroom::pager
