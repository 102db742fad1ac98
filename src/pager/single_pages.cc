// See single_pages.h. A page is present (in memory; mapped, or hidden), being read, or absent. While dirty pages are written
// their block is in no list; one that is written to meanwhile is dirty again, and then the block stays.
#include "pager/single_pages.h"

#include <string.h>

#include "pager/divided_blocks.h"
#include "pager/fatal_errors.h"
#include "pager/fork_copies.h"
#include "pager/forked_children.h"
#include "pager/hollow_blocks.h"
#include "pager/page_readers.h"
#include "pager/present_pages.h"
#include "pager/room.h"
#include "pager/shares.h"
#include "pager/state.h"
#include "pager/store_speed.h"
#include "pager/streams.h"
#include "pager/touched.h"
#include "pager/transfers.h"
#include "pager/untouched_pages.h"
#include "pager/waiting_accesses.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using namespace arena;
using trace::Counter;

constexpr uint64_t kAwakeNs = 200'000;       // twice what a page takes: who jumps about asks for the next one before
constexpr uint64_t kEnoughToReadAhead = 64;  // resident blocks: with fewer, pages read ahead push out what is in use

struct PageRead {
  bool used;
  uint32_t page;
  uint64_t block;
};

PageRead page_reads[Store::kDepth] = {};
char* page_buffers = nullptr;  // one for each of these; the first ones first, so that no more have memory than are needed
char* fill_buffer = nullptr;
constexpr uint64_t kNone = UINT64_MAX;
uint64_t filled_block = kNone;  // the one that is being filled
PageReaders readers;

bool reserve(int64_t bytes, Urgency urgency = Urgency::kSomebodyWaits) {
  const bool somebody_waits = urgency == Urgency::kSomebodyWaits;
  const auto reserve_now = [bytes] { return node::reserve(*state.session->ledger, *state.session->self, bytes); };
  if (!somebody_waits || !older_ones_lack_room()) {
    bool reserved = reserve_now();
    if (!reserved) {
      note_short();                     // a process that a fork has armed may be the first to find out
      make_room(kBlockBytes, urgency);  // several pages' worth: the next ones will want it
      reserved = reserve_now();
    }
    if (reserved) {
      state.waits_for_others = false;
      return true;
    }
  }
  state.lacking_blocks += somebody_waits ? 1 : 0;
  return false;
}

/// The room for the next page is made while the disk brings this one.
void make_room_ahead() {
  if (state.session->ledger->free_bytes.load(std::memory_order_relaxed) < int64_t{kPageBytes}) {
    const bool waited = state.waits_for_others;
    make_room(kBlockBytes, Urgency::kNobodyWaits);
    state.waits_for_others = waited && state.waits_for_others;  // nobody waits for it yet
  }
}

int index_of_read(uint64_t block, uint32_t page) {
  int index = 0;
  while (!page_reads[index].used || page_reads[index].block != block || page_reads[index].page != page) {
    ++index;
  }
  return index;
}

/// There is one: fewer transfers than that are under way.
char* take_page_buffer(uint64_t block, uint32_t page) {
  int index = 0;
  while (page_reads[index].used) {
    ++index;
  }
  page_reads[index] = {true, page, block};
  return page_buffers + static_cast<uint64_t>(index) * kPageBytes;
}

void begin_single_pages(uint64_t block) {
  if (state_of(word_of(block).load(std::memory_order_relaxed)) == kStored) {
    pages_of(block) = {};
    set_state(block, kMarker, kSinglePages);
    state.resident.expect(block, false);
    state.resident.loaded(block, false);
  }
}

void make_page(uint64_t block, uint32_t page) {
  if (populate_page(*state.partition, block * kBlockBytes + page * kPageBytes) != base::Status::kOk) {
    die_without_memory();
  }
}

void start_page_read(uint64_t block, uint32_t page) {
  state.random_access.note_page_read(block, page, memory_view());
  note_read_pages(block, 1, bit_of(page));
  state.awake_until_ns = base::monotonic_ns() + kAwakeNs;
  begin_single_pages(block);
  pages_of(block).reading |= bit_of(page);
  start_page_transfer(false, block, page, 1, take_page_buffer(block, page));
  make_page(block, page);
  make_room_ahead();
}

/// Brings a page that is zero on storage; its room is reserved. It counts as changed, so that it is writable at once: what is
/// touched for the first time is mostly written, if perhaps after a look. (If not, it leaves without being written.)
void bring_zero_page(uint64_t block, uint32_t page) {
  state.awake_until_ns = base::monotonic_ns() + kAwakeNs;
  begin_single_pages(block);
  make_page(block, page);
  pages_of(block).present |= bit_of(page);
  pages_of(block).dirty |= bit_of(page);
  note_touched_pages(block, 1, bit_of(page));
  count_touched();
  trace::count(Counter::kSinglePagesUntouched);
}

/// Begins to read a page that its reader is likely to come to, if it is there and not here yet; false if there is no room for
/// more.
bool read_page_ahead(uint64_t block, uint32_t page) {
  const uint64_t block_state = state_of(word_of(block).load(std::memory_order_relaxed));
  if ((block_state != kStored && block_state != kSinglePages) ||
      page * kPageBytes >= view_of_block(*state.partition, block).bytes) {  // behind the end of a static array
    return true;
  }
  if (block_state == kSinglePages && ((pages_of(block).present | pages_of(block).reading) & bit_of(page)) != 0) {
    return true;
  }
  const bool waited = state.waits_for_others;
  const bool begun = state.store->in_flight() < Store::kDepth / 2 && reserve(kPageBytes, Urgency::kNobodyWaits);
  state.waits_for_others = waited && state.waits_for_others;  // nobody waits for it yet
  if (begun) {
    start_page_read(block, page);
    trace::count(Counter::kSinglePagesAhead);
  }
  return begun;
}

/// The program came to that page: reads what comes next, if it goes on by the same distance each time.
void read_pages_ahead(uint64_t block, uint32_t page) {
  if (state.turn_is_cut || state.resident.count() < kEnoughToReadAhead) {
    return;
  }
  const PagesAhead ahead = readers.note_use(block * kPagesOfBlock + page);
  const auto committed = static_cast<int64_t>(state.partition->committed.load(std::memory_order_relaxed) / kPageBytes);
  if (ahead.count == 0) {
    return;
  }
  state.store->begin_batch();
  for (int64_t each = 0; each < ahead.count; ++each) {
    const int64_t next = ahead.first + each * ahead.step;
    if (next < 0 || next >= committed) {
      break;
    }
    const auto number = static_cast<uint64_t>(next);
    if (!read_page_ahead(number / kPagesOfBlock, static_cast<uint32_t>(number % kPagesOfBlock))) {
      readers.not_read_from(next);
      break;
    }
  }
  state.store->end_batch();
  forget_timed_read();  // the read that was begun first has waited for the others
}

/// Makes a block whole whose missing pages are zero; their room is reserved.
void fill_with_zeros(uint64_t block) {
  if (populate(*state.partition, block, 1) != base::Status::kOk) {
    die_without_memory();
  }
  note_touched_pages(block, 1, kAllPages);
  count_touched();
  pages_of(block).present = kAllPages;
  make_whole_again(block);
}

/// Reads the whole block into the buffer; from then on it is READING, unless nothing of it is on storage. False if that has to
/// wait.
bool start_fill(uint64_t block) {
  Pages& pages = pages_of(block);
  const bool is_zero = are_zero_on_storage(block, ~pages.present);  // then nothing is read
  if (pages_are_moving(block) || (!is_zero && (filled_block != kNone || !can_transfer()))) {
    return false;
  }
  state.resident.remove(block);  // making room must not evict it
  if (!reserve(bytes_of(~pages.present))) {
    state.resident.returned(block);
    return false;
  }
  if (is_mostly_untouched(block)) {
    note_not_hollow();
  }
  trace::count(Counter::kBlocksFilled);
  if (is_zero) {
    fill_with_zeros(block);
    return true;
  }
  filled_block = block;
  note_read_pages(block, 1, kAllPages);
  set_state(block, 0, kReading);
  start_fill_transfer(block, fill_buffer);
  return true;
}

/// For a page that is missing: fills the block instead, if that is the plan, now or when the access is tried again.
bool fill_if_better(uint64_t block, uint32_t page, bool page_is_zero) {
  const uint64_t present = pages_of(block).present;
  const PartOfBlock part = {__builtin_popcountll(present | pages_of(block).reading), page_is_zero};
  const Plan plan = plan_missing_page({block, page, false, true}, part, state.random_access, memory_view());
  state.random_access.note_asked(block, page);
  if (plan.too_much) {
    state.random_access.note_too_much();
  }
  if (!plan.whole) {
    return false;
  }
  if (plan.jumps_about) {
    note_better_whole(block, 1);
  }
  const bool begun = start_fill(block);
  if (begun && plan.half_is_here) {
    note_filled(block, present);
  }
  if (begun && plan.goes_on) {
    state.random_access.note_read_in_order();
    extend_stream(block);
  }
  return true;
}

}  // namespace

void note_better_whole(uint64_t first, uint64_t count) {
  RandomAccess& random = state.random_access;
  for (uint64_t block = first; block < first + count; ++block) {
    trace::count(Counter::kBlocksReadWhole, random.note_better_whole(block) ? 1 : 0);
  }
  state.needed_in_turn.store(static_cast<int64_t>(random.needed()), std::memory_order_relaxed);
  if (random.needed() > share_of_memory()) {
    start_wanting_all();
  }
}

bool open_single_pages(uint64_t blocks) {
  fill_buffer = static_cast<char*>(base::reserve_memory(kBlockBytes));
  page_buffers = static_cast<char*>(base::reserve_memory(Store::kDepth * kPageBytes));
  return open_present_pages(blocks) && open_untouched_pages(blocks) && fill_buffer != nullptr && page_buffers != nullptr &&
         state.random_access.open(blocks);
}

bool serve_page(uint64_t block, uint32_t page, bool write) {
  if (page == kWholeBlock) {
    (void)start_fill(block);
    return false;
  }
  Pages& pages = pages_of(block);
  const bool begins = state_of(word_of(block).load(std::memory_order_relaxed)) == kStored;
  const uint64_t bit = bit_of(page);
  if (!begins && (pages.present & bit) != 0) {
    const bool writable = write ? give_children_copies(block) : (pages.dirty & bit) != 0 && is_given_to_all(block);
    if (write && !writable) {
      return false;
    }
    pages.dirty |= writable ? bit : 0;
    state.engine->map(view_of_page(block, page), writable);
    if ((pages.hidden & bit) != 0) {
      pages.hidden &= ~bit;
      trace::count(Counter::kSinglePagesUsedAgain);
    } else {
      read_pages_ahead(block, page);
    }
    return true;
  }
  if (!begins && (pages.reading & bit) != 0) {
    read_pages_ahead(block, page);
    return false;
  }
  const bool is_zero = are_zero_on_storage(block, bit);
  if (!begins && fill_if_better(block, page, is_zero)) {
    return false;
  }
  if (is_zero) {
    if (!reserve(kPageBytes)) {
      return false;
    }
    bring_zero_page(block, page);
    return serve_page(block, page, write);
  }
  if (can_transfer() && reserve(kPageBytes)) {
    start_page_read(block, page);
    state.session->self->turns.read_page_at_ns.store(base::monotonic_ns(), std::memory_order_relaxed);
    read_pages_ahead(block, page);
  }
  return false;
}

void place_page(uint64_t block, uint32_t page) {
  Pages& pages = pages_of(block);
  memcpy(alias_of_page(block, page), content_of_page(block, page), kPageBytes);
  page_reads[index_of_read(block, page)].used = false;
  pages.reading &= ~bit_of(page);
  pages.present |= bit_of(page);
  trace::count(Counter::kSinglePagesRead);
}

void map_page_read_ahead(uint64_t block, uint32_t page) {
  if (!readers.is_marker(block * kPagesOfBlock + page)) {
    state.engine->map(view_of_page(block, page), false);
  }
}

const char* content_of_page(uint64_t block, uint32_t page) {
  return page_buffers + static_cast<uint64_t>(index_of_read(block, page)) * kPageBytes;
}

bool fill_is_right(uint64_t block) { return absent_pages_are_right(block, fill_buffer); }

bool is_being_filled(uint64_t block) { return block == filled_block; }

void fill_done(uint64_t block) {
  Pages& pages = pages_of(block);
  if (populate(*state.partition, block, 1) != base::Status::kOk) {
    die_without_memory();
  }
  for (uint64_t page = 0; page < kPagesOfBlock; ++page) {
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

}  // namespace headroom::pager
