// See single_pages.h. A page is present (in memory and mapped), being read, or absent. While dirty pages are written their
// block is in no list; one that is written to meanwhile is dirty again, and then the block stays.
#include "pager/single_pages.h"

#include <string.h>
#include <time.h>

#include "pager/checksums.h"
#include "pager/fork.h"
#include "pager/state.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using namespace arena;
using trace::Counter;

constexpr uint64_t kPages = kBlockBytes / kPageBytes;
static_assert(kPages == 64, "a word has a bit for each page");
constexpr int64_t kShortNs = 80'000;  // half as much and more is what a busy machine adds by itself
constexpr int kLeastSure = 16;        // random faults in excess of others
constexpr int kLongSure = 16;         // so many more are remembered
constexpr int kDoubt = 4;
constexpr int kFillAt = 32;      // pages
constexpr int kWholePaysAt = 4;  // pages: reading so many alone takes longer than reading the block
constexpr uint32_t kKnownTurns = 16;
constexpr uint64_t kWholeAhead = 32;  // blocks
constexpr int kRecent = 4;
constexpr uint64_t kAwakeNs = 200'000;

struct Pages {
  uint64_t present;
  uint64_t dirty;  // of these
  uint64_t reading;
  uint32_t writes;   // transfers under way
  uint32_t leaving;  // pages that will be free when they have ended
};

/// Of a block: the pages that were read alone in that turn, the turn in which these were many for the first time, and the last
/// one in which the block was read as a whole instead.
struct ReadInTurn {
  uint32_t turn;
  uint32_t many_since;
  uint32_t whole_in;
  uint64_t pages;
};

Pages* table = nullptr;
ReadInTurn* read_in_turn = nullptr;
uint32_t current_turn = 1;
uint64_t came_back = 0;    // pages that were read in this turn for the second time, or more
uint64_t read_once = 0;    // different pages read in it
uint64_t jumped_to = 0;    // blocks of which pages were read alone in it, or that were read as a whole instead
uint32_t too_many_in = 0;  // the last turn in which these did not fit in memory
char* fill_buffer = nullptr;
constexpr uint64_t kNone = UINT64_MAX;
uint64_t filled_block = kNone;  // the one that is being filled
int sureness = 0;
int sure = kLeastSure;
uint64_t computed_ns = 0;  // at the last fault on storage
uint64_t recent_pages[kRecent] = {};
uint64_t recent_at = 0;

uint64_t bit_of(uint32_t page) { return uint64_t{1} << page; }

int64_t bytes_of(uint64_t pages) { return static_cast<int64_t>(__builtin_popcountll(pages)) * int64_t{kPageBytes}; }

uint64_t nanoseconds_of(int clock) {
  timespec time = {};
  (void)base::system_call(SYS_clock_gettime, clock, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

View view_of_page(uint64_t block, uint32_t page) {
  return {view_of_block(*state.partition, block).address + page * kPageBytes, kPageBytes};
}

char* alias_of_page(uint64_t block, uint64_t page) {
  return reinterpret_cast<char*>(state.partition->alias + block * kBlockBytes + page * kPageBytes);
}

void set_state(uint64_t block, uint64_t clear, uint64_t set) { change_word(word_of(block), clear | kStateMask, set); }

bool reserve(int64_t bytes) {
  if (!node::reserve(*state.session->ledger, *state.session->self, bytes)) {
    make_room(kBlockBytes);  // several pages' worth: the next ones will want it
    if (!node::reserve(*state.session->ledger, *state.session->self, bytes)) {
      return false;
    }
  }
  state.waits_for_others = false;
  return true;
}

/// Whose random accesses all fall on an eighth of what there is room for is better served with whole blocks: they stay.
int faults_until_sure() {
  const auto blocks = static_cast<int>(share_of_memory() / kBlockBytes / 8);
  return blocks > kLeastSure ? blocks : kLeastSure;
}

/// Whether a page beside it was asked for a moment ago: then this is no random access.
bool continues_recent(uint64_t block, uint32_t page) {
  const uint64_t number = block * kPages + page;
  bool beside = false;
  bool asked = false;  // it waits, and this is another try
  for (const uint64_t recent : recent_pages) {
    beside = beside || recent + 1 == number || recent == number + 1;
    asked = asked || recent == number;
  }
  if (!asked) {
    recent_pages[recent_at++ % kRecent] = number;
  }
  return beside;
}

void note_page_read(uint64_t block, uint32_t page) {
  ReadInTurn& known = read_in_turn[block];
  if (known.turn != current_turn) {
    known.turn = current_turn;
    known.pages = 0;
    ++jumped_to;
  }
  ((known.pages & bit_of(page)) != 0 ? came_back : read_once) += 1;
  known.pages |= bit_of(page);
  if (__builtin_popcountll(known.pages) == kWholePaysAt) {
    known.many_since = current_turn;
  }
}

/// Whether so many of the block's pages are read alone in a turn that it would have been better to read it as a whole.
bool is_jumped_about_in(const ReadInTurn& known) {
  return __builtin_popcountll(known.pages) >= kWholePaysAt && current_turn - known.many_since < kKnownTurns;
}

void note_whole_read(ReadInTurn& known) {
  if (known.whole_in != current_turn) {
    known.whole_in = current_turn;
    jumped_to += known.turn != current_turn ? 1 : 0;
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

/// Whether the block is to be read as a whole, although the access is random; the rank then asks for the memory that this
/// takes.
bool is_better_read_whole(uint64_t block) {
  if (!is_jumped_about_in(read_in_turn[block]) || !jumps_about_in_what_fits()) {
    return false;
  }
  note_whole_read(read_in_turn[block]);
  if (jumped_to * kBlockBytes > share_of_memory()) {
    want_all();
  }
  return true;
}

void start_page_read(uint64_t block, uint32_t page) {
  note_page_read(block, page);
  const uint64_t now = base::monotonic_ns();
  state.awake_until_ns = now + kAwakeNs;
  state.session->self->read_page_at_ns.store(now, std::memory_order_relaxed);
  Pages& pages = table[block];
  if (state_of(word_of(block).load(std::memory_order_relaxed)) == kStored) {
    pages = {};
    set_state(block, kMarker, kSinglePages);
    state.resident.expect(block, false);
    state.resident.loaded(block, false);
  }
  state.resident.used(block);
  pages.reading |= bit_of(page);
  start_page_transfer(false, block, page, 1, alias_of_page(block, page));
}

/// Reads the whole block into the buffer; from then on it is READING. False if that has to wait.
bool start_fill(uint64_t block) {
  Pages& pages = table[block];
  if (pages_are_moving(block) || filled_block != kNone || !can_transfer()) {
    return false;
  }
  state.resident.remove(block);  // making room must not evict it
  if (!reserve(bytes_of(~pages.present))) {
    state.resident.returned(block);
    return false;
  }
  filled_block = block;
  set_state(block, 0, kReading);
  start_fill_transfer(block, fill_buffer);
  trace::count(Counter::kBlocksFilled);
  return true;
}

/// Takes the memory of the pages away, all of which are clean.
void drop_pages(uint64_t block) {
  Pages& pages = table[block];
  const uint64_t before = word_of(block).load(std::memory_order_relaxed);
  set_state(block, 0, kStored | out_marks(before));
  punch(*state.partition, block, 1);
  node::release(*state.session->ledger, *state.session->self, bytes_of(pages.present));
  trace::count(Counter::kBlocksEvicted);
  pages = {};
}

void write_dirty_pages(uint64_t block) {
  Pages& pages = table[block];
  uint64_t left = pages.dirty;
  pages.dirty = 0;
  while (left != 0) {
    const auto first = static_cast<uint32_t>(__builtin_ctzll(left));
    uint32_t count = 1;
    while (first + count < kPages && (left & bit_of(first + count)) != 0) {
      ++count;
    }
    left &= ~((count == kPages ? ~uint64_t{0} : bit_of(count) - 1) << first);
    ++pages.writes;
    start_page_transfer(true, block, first, count, alias_of_page(block, first));
  }
}

}  // namespace

bool open_single_pages(uint64_t blocks) {
  table = static_cast<Pages*>(base::reserve_memory(blocks * sizeof(Pages)));
  read_in_turn = static_cast<ReadInTurn*>(base::reserve_memory(blocks * sizeof(ReadInTurn)));
  fill_buffer = static_cast<char*>(base::reserve_memory(kBlockBytes));
  return table != nullptr && read_in_turn != nullptr && fill_buffer != nullptr;
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

void note_storage_fault(bool in_order) {
  const uint64_t own = nanoseconds_of(CLOCK_THREAD_CPUTIME_ID);
  const uint64_t now = nanoseconds_of(CLOCK_PROCESS_CPUTIME_ID) - own;
  const bool random = !in_order && static_cast<int64_t>(now - computed_ns) < kShortNs;
  computed_ns = now;
  if (random) {
    sure = sureness == 0 ? faults_until_sure() : sure;
    sureness = sureness < sure + kLongSure ? sureness + 1 : sureness;
  } else {
    sureness = sureness > kDoubt ? sureness - kDoubt : 0;
  }
}

bool prefers_single_page(uint64_t block, uint32_t page) {
  const bool continues = page != kWholeBlock && continues_recent(block, page);
  return page != kWholeBlock && !continues && sureness >= sure && state.engine->kind() != base::EngineChoice::kSigsegv &&
         !is_better_read_whole(block);
}

bool read_ahead_in_jumps(uint64_t block) {
  const uint64_t committed = state.partition->committed.load(std::memory_order_relaxed) / kBlockBytes;
  uint64_t count = 0;
  if (read_in_turn[block].whole_in == current_turn) {
    for (uint64_t next = block + 1; count < kWholeAhead && next < committed && is_jumped_about_in(read_in_turn[next]);
         ++next, ++count) {
      note_whole_read(read_in_turn[next]);
    }
  }
  if (count > 0 && state_of(word_of(block + 1).load(std::memory_order_relaxed)) == kStored) {
    read_announced(block + 1, count);
  }
  return count > 0;
}

bool serve_page(uint64_t block, uint32_t page, bool write) {
  if (page == kWholeBlock) {
    (void)start_fill(block);
    return false;
  }
  Pages& pages = table[block];
  const bool begins = state_of(word_of(block).load(std::memory_order_relaxed)) == kStored;
  const uint64_t bit = bit_of(page);
  if (!begins && (pages.present & bit) != 0) {
    const bool writable = (write || (pages.dirty & bit) != 0) && may_write(block);
    if (write && !writable) {
      return false;
    }
    pages.dirty |= writable ? bit : 0;
    state.engine->map(view_of_page(block, page), writable);
    return true;
  }
  if (!begins && (pages.reading & bit) != 0) {
    return false;
  }
  const bool continues = !begins && continues_recent(block, page);
  if (continues ||
      (!begins && (__builtin_popcountll(pages.present | pages.reading) >= kFillAt || is_better_read_whole(block)))) {
    if (start_fill(block) && continues) {
      sureness /= 2;
      extend_stream(block);
    }
    return false;
  }
  if (can_transfer() && reserve(kPageBytes)) {
    start_page_read(block, page);
  }
  return false;
}

void page_read_done(uint64_t block, uint32_t page) {
  Pages& pages = table[block];
  pages.reading &= ~bit_of(page);
  pages.present |= bit_of(page);
  trace::count(Counter::kSinglePagesRead);
  // Who waits for this very page needs no room. The others may, and the room may be this block's: so they come last.
  if (!serve_waiting(block, 1, page)) {
    state.engine->map(view_of_page(block, page), false);
  }
  (void)serve_waiting(block, 1);
}

int64_t evict_pages(uint64_t block) {
  Pages& pages = table[block];
  if (pages.reading != 0 || pages.writes != 0) {
    state.resident.look_later(block);
    return 0;
  }
  if (pages.dirty == 0) {
    state.resident.remove(block);
    const int64_t bytes = bytes_of(pages.present);
    drop_pages(block);
    return bytes;
  }
  const uint64_t run_ends = pages.dirty & ~(pages.dirty >> 1);
  // One place in the store stays: whoever makes room here is about to read.
  if (state.store->in_flight() + __builtin_popcountll(run_ends) >= Store::kDepth) {
    return 0;
  }
  const View view = view_of_block(*state.partition, block);
  state.engine->protect(view);
  if (is_written_remotely(view)) {
    state.resident.look_later(block);
    return 0;
  }
  state.resident.remove(block);
  pages.leaving = static_cast<uint32_t>(__builtin_popcountll(pages.present));
  state.leaving_bytes += bytes_of(pages.present);
  trace::count(Counter::kSinglePagesWritten, static_cast<uint64_t>(__builtin_popcountll(pages.dirty)));
  write_dirty_pages(block);
  return bytes_of(pages.present);
}

void page_write_done(uint64_t block) {
  Pages& pages = table[block];
  if (--pages.writes > 0) {
    return;
  }
  state.leaving_bytes -= static_cast<int64_t>(pages.leaving * kPageBytes);
  pages.leaving = 0;
  if (pages.dirty == 0 && pages.reading == 0) {
    drop_pages(block);
    return;
  }
  trace::count(Counter::kEvictionsGivenUp);
  state.resident.returned(block);
  state.resident.look_later(block);
}

bool absent_pages_are_right(uint64_t block, const char* content) {
  for (uint32_t page = 0; page < kPages; ++page) {
    if ((table[block].present & bit_of(page)) == 0 &&
        !is_what_was_written(block * kBlockBytes + page * kPageBytes, content + page * kPageBytes, kPageBytes)) {
      return false;
    }
  }
  return true;
}

bool fill_is_right(uint64_t block) { return absent_pages_are_right(block, fill_buffer); }

bool is_being_filled(uint64_t block) { return block == filled_block; }

void fill_done(uint64_t block) {
  Pages& pages = table[block];
  if (populate(*state.partition, block, 1) != base::Status::kOk) {
    die_without_memory();
  }
  for (uint64_t page = 0; page < kPages; ++page) {
    if ((pages.present & bit_of(static_cast<uint32_t>(page))) == 0) {
      memcpy(alias_of_page(block, page), fill_buffer + page * kPageBytes, kPageBytes);
    }
  }
  // All of the view is taken away, so that from now on the block's word says what is mapped.
  state.engine->hide(view_of_block(*state.partition, block));
  word_of(block).fetch_or(pages.dirty != 0 ? kDirty : 0, std::memory_order_acq_rel);
  pages = {};
  filled_block = kNone;
}

bool pages_are_moving(uint64_t block) { return table[block].reading != 0 || table[block].writes != 0; }

uint64_t bytes_of_pages(uint64_t block) { return static_cast<uint64_t>(bytes_of(table[block].present | table[block].reading)); }

void forget_pages(uint64_t block) {
  if (state.resident.is_listed(block)) {
    state.resident.remove(block);
  }
  punch(*state.partition, block, 1);
  node::release(*state.session->ledger, *state.session->self, bytes_of(table[block].present));
  table[block] = {};
}

void overlay_pages(uint64_t block, char* content) {
  for (uint32_t page = 0; page < kPages; ++page) {
    if ((table[block].present & bit_of(page)) != 0) {
      memcpy(content + page * kPageBytes, alias_of_page(block, page), kPageBytes);
    }
  }
}

}  // namespace headroom::pager
