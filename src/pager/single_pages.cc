// See single_pages.h. A page is present (in memory and mapped), being read, or absent. While dirty pages are written their
// block is in no list; one that is written to meanwhile is dirty again, and then the block stays.
#include "pager/single_pages.h"

#include <string.h>

#include "pager/checksums.h"
#include "pager/fork.h"
#include "pager/page_readers.h"
#include "pager/page_uses.h"
#include "pager/random_access.h"
#include "pager/state.h"
#include "pager/store_room.h"
#include "pager/store_speed.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using namespace arena;
using trace::Counter;

constexpr uint64_t kPages = kBlockBytes / kPageBytes;
static_assert(kPages == 64, "a word has a bit for each page");
constexpr int kFillAt = 32;  // pages
constexpr uint64_t kAwakeNs = 200'000;
constexpr uint64_t kEnoughToReadAhead = 64;  // resident blocks
/// Pages that were seen in use are asked again every so many visits: to see a use costs a fault.
constexpr uint32_t kVisitsOfHotPages = 16;

struct Pages {
  uint64_t present;
  uint64_t dirty;   // of these
  uint64_t hidden;  // of these: not used since access to them was taken away
  uint64_t asked;   // were hidden when the search for room came by
  uint64_t proven;  // were used after they were hidden
  uint64_t reading;
  uint64_t leaving;  // will be free when the transfers have ended
  uint32_t writes;   // transfers under way
  uint32_t visits;   // of the search for room
};

struct PageRead {
  bool used;
  uint32_t page;
  uint64_t block;
};

Pages* table = nullptr;
PageRead page_reads[Store::kDepth] = {};
char* page_buffers = nullptr;  // one for each of these; the first ones first, so that no more have memory than are needed
char* fill_buffer = nullptr;
constexpr uint64_t kNone = UINT64_MAX;
uint64_t filled_block = kNone;  // the one that is being filled
PageReaders readers;
PageUses uses;

uint64_t bit_of(uint32_t page) { return uint64_t{1} << page; }

int64_t bytes_of(uint64_t pages) { return static_cast<int64_t>(__builtin_popcountll(pages)) * int64_t{kPageBytes}; }

View view_of_page(uint64_t block, uint32_t page) {
  return {view_of_block(*state.partition, block).address + page * kPageBytes, kPageBytes};
}

char* alias_of_page(uint64_t block, uint64_t page) {
  return reinterpret_cast<char*>(state.partition->alias + block * kBlockBytes + page * kPageBytes);
}

void set_state(uint64_t block, uint64_t clear, uint64_t set) { change_word(word_of(block), clear | kStateMask, set); }

bool reserve(int64_t bytes, Urgency urgency = Urgency::kSomebodyWaits) {
  const bool somebody_waits = urgency == Urgency::kSomebodyWaits;
  const auto reserve_now = [bytes] { return node::reserve(*state.session->ledger, *state.session->self, bytes); };
  if (!somebody_waits || !older_ones_lack_room()) {
    bool reserved = reserve_now();
    if (!reserved) {
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

void start_page_read(uint64_t block, uint32_t page) {
  note_page_read(block, page);
  state.awake_until_ns = base::monotonic_ns() + kAwakeNs;
  Pages& pages = table[block];
  if (state_of(word_of(block).load(std::memory_order_relaxed)) == kStored) {
    pages = {};
    set_state(block, kMarker, kSinglePages);
    state.resident.expect(block, false);
    state.resident.loaded(block, false);
  }
  pages.reading |= bit_of(page);
  start_page_transfer(false, block, page, 1, take_page_buffer(block, page));
  if (populate_page(*state.partition, block * kBlockBytes + page * kPageBytes) != base::Status::kOk) {
    die_without_memory();
  }
  make_room_ahead();
}

/// Begins to read a page that its reader is likely to come to, if it is there and not here yet; false if there is no room for
/// more.
bool read_page_ahead(uint64_t block, uint32_t page) {
  const uint64_t block_state = state_of(word_of(block).load(std::memory_order_relaxed));
  if ((block_state != kStored && block_state != kSinglePages) ||
      page * kPageBytes >= view_of_block(*state.partition, block).bytes) {  // behind the end of a static array
    return true;
  }
  if (block_state == kSinglePages && ((table[block].present | table[block].reading) & bit_of(page)) != 0) {
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
  const PagesAhead ahead = readers.note_use(block * kPages + page);
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
    if (!read_page_ahead(number / kPages, static_cast<uint32_t>(number % kPages))) {
      readers.not_read_from(next);
      break;
    }
  }
  state.store->end_batch();
  forget_timed_read();  // the read that was begun first has waited for the others
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

/// Calls `each(first, count)` for each run of pages.
template <typename Each>
void for_each_run(uint64_t pages, Each each) {
  while (pages != 0) {
    const auto first = static_cast<uint32_t>(__builtin_ctzll(pages));
    uint32_t count = 1;
    while (first + count < kPages && (pages & bit_of(first + count)) != 0) {
      ++count;
    }
    pages &= ~((count == kPages ? ~uint64_t{0} : bit_of(count) - 1) << first);
    each(first, count);
  }
}

void hide_pages(uint64_t block, uint64_t hidden) {
  Pages& pages = table[block];
  pages.hidden |= hidden;
  if (pages.hidden == pages.present) {
    state.engine->hide(view_of_block(*state.partition, block));
    return;
  }
  for_each_run(hidden, [&](uint32_t first, uint32_t count) {
    state.engine->hide({view_of_page(block, first).address, count * kPageBytes});
  });
}

/// The pages that stay: their next use is to be seen.
void hide_for_next_visit(uint64_t block) {
  Pages& pages = table[block];
  const bool all = ++pages.visits % kVisitsOfHotPages == 0 || PageUses::is_sampled(block);
  hide_pages(block, pages.present & ~(all ? 0 : pages.proven));
  pages.asked = pages.hidden;
}

/// Notes which of the pages that were asked have been used since.
void note_uses(uint64_t block) {
  Pages& pages = table[block];
  const uint64_t again = pages.asked & ~pages.hidden;
  if (PageUses::is_sampled(block)) {
    uses.note_visit(pages.asked, again, pages.proven);
  }
  pages.proven |= again;
  pages.asked = 0;
}

/// Takes the memory of these pages away, all of which are clean; the block is listed again if it has others.
void drop_pages(uint64_t block, uint64_t gone) {
  Pages& pages = table[block];
  if (gone == pages.present && pages.reading == 0) {
    const uint64_t before = word_of(block).load(std::memory_order_relaxed);
    set_state(block, 0, kStored | out_marks(before));
    punch(*state.partition, block, 1);
    node::release(*state.session->ledger, *state.session->self, bytes_of(gone));
    trace::count(Counter::kBlocksEvicted);
    pages = {};
    return;
  }
  for_each_run(gone, [&](uint32_t first, uint32_t count) {
    punch_bytes(*state.partition, block * kBlockBytes + first * kPageBytes, count * kPageBytes);
  });
  node::release(*state.session->ledger, *state.session->self, bytes_of(gone));
  pages.present &= ~gone;
  pages.hidden &= ~gone;
  pages.proven &= ~gone;
  trace::count(Counter::kSinglePagesStayed, static_cast<uint64_t>(__builtin_popcountll(pages.present)));
  hide_for_next_visit(block);
  state.resident.visited(block);
}

void write_pages(uint64_t block, uint64_t written) {
  Pages& pages = table[block];
  pages.dirty &= ~written;
  state.store->begin_batch();
  for_each_run(written, [&](uint32_t first, uint32_t count) {
    ++pages.writes;
    start_page_transfer(true, block, first, count, alias_of_page(block, first));
  });
  state.store->end_batch();
}

}  // namespace

bool open_single_pages(uint64_t blocks) {
  table = static_cast<Pages*>(base::reserve_memory(blocks * sizeof(Pages)));
  fill_buffer = static_cast<char*>(base::reserve_memory(kBlockBytes));
  page_buffers = static_cast<char*>(base::reserve_memory(Store::kDepth * kPageBytes));
  return table != nullptr && fill_buffer != nullptr && page_buffers != nullptr && open_random_access(blocks);
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
  const bool continues = !begins && (note_asked_page(block, page) || continues_in_block(block, page));
  if (continues || (!begins && (__builtin_popcountll(pages.present | pages.reading) >= kFillAt || choose_whole_read(block)))) {
    if (start_fill(block) && continues) {
      doubt_random_access();
      extend_stream(block);
    }
    return false;
  }
  if (can_transfer() && reserve(kPageBytes)) {
    start_page_read(block, page);
    state.session->self->turns.read_page_at_ns.store(base::monotonic_ns(), std::memory_order_relaxed);
    read_pages_ahead(block, page);
  }
  return false;
}

bool is_hidden_page(uint64_t block, uint32_t page) { return page != kWholeBlock && (table[block].hidden & bit_of(page)) != 0; }

const char* content_of_page(uint64_t block, uint32_t page) {
  return page_buffers + static_cast<uint64_t>(index_of_read(block, page)) * kPageBytes;
}

void page_read_done(uint64_t block, uint32_t page) {
  Pages& pages = table[block];
  memcpy(alias_of_page(block, page), content_of_page(block, page), kPageBytes);
  page_reads[index_of_read(block, page)].used = false;
  pages.reading &= ~bit_of(page);
  pages.present |= bit_of(page);
  trace::count(Counter::kSinglePagesRead);
  // A thread that waits for this very page needs no room. The others may, and the room may be this block's: so they come last.
  if (!serve_waiting(block, 1, page) && !readers.is_marker(block * kPages + page)) {
    state.engine->map(view_of_page(block, page), false);
  }
  (void)serve_waiting(block, 1);
}

int64_t evict_pages(uint64_t block, bool used, bool& some_are_used) {
  Pages& pages = table[block];
  if (pages.reading != 0 || pages.writes != 0) {
    state.resident.move_behind_others(block);
    return 0;
  }
  note_uses(block);
  const bool all = used || !(PageUses::is_sampled(block) || uses.some_are_hot());
  const uint64_t gone = all ? pages.present : pages.hidden;
  some_are_used = some_are_used || gone != pages.present;
  if (gone == 0) {
    hide_for_next_visit(block);
    state.resident.visited(block);
    return 0;
  }
  const uint64_t written = gone & pages.dirty;
  const uint64_t run_ends = written & ~(written >> 1);
  // One place in the store stays: making room is followed by a read.
  if (written != 0 && state.store->in_flight() + __builtin_popcountll(run_ends) >= Store::kDepth) {
    return 0;
  }
  if (written != 0 && !find_store_room(block * kBlockBytes)) {
    state.resident.move_behind_others(block);
    return 0;
  }
  if (all) {
    hide_pages(block, pages.present);
  }
  if (written == 0) {
    state.resident.remove(block);
    drop_pages(block, gone);
    return bytes_of(gone);
  }
  // Hidden as they are, unless the program has locked them in memory behind our back.
  for_each_run(written, [&](uint32_t first, uint32_t count) {
    state.engine->protect({view_of_page(block, first).address, count * kPageBytes});
  });
  if (is_written_remotely(view_of_block(*state.partition, block))) {
    state.resident.move_behind_others(block);
    return 0;
  }
  state.resident.remove(block);
  pages.leaving = gone;
  state.leaving_bytes += bytes_of(gone);
  trace::count(Counter::kSinglePagesWritten, static_cast<uint64_t>(__builtin_popcountll(written)));
  write_pages(block, written);
  return bytes_of(gone);
}

void page_write_lacked_room(uint64_t block, uint32_t first_page, uint64_t count) {
  for (uint32_t page = first_page; page < first_page + count; ++page) {
    table[block].dirty |= bit_of(page);
  }
  page_write_done(block);
}

void page_write_done(uint64_t block) {
  Pages& pages = table[block];
  if (--pages.writes > 0) {
    return;
  }
  pages.proven |= pages.leaving & ~pages.hidden;
  const uint64_t gone = pages.leaving & pages.hidden & ~pages.dirty;
  state.leaving_bytes -= bytes_of(pages.leaving);
  pages.leaving = 0;
  if (gone != 0) {
    drop_pages(block, gone);
    return;
  }
  trace::count(Counter::kEvictionsGivenUp);
  hide_for_next_visit(block);
  state.resident.visited(block);
}

bool absent_pages_are_right(uint64_t block, const char* content) {
  for (uint32_t page = 0; page < kPages; ++page) {
    if ((table[block].present & bit_of(page)) == 0 &&
        !compare_with_written(block * kBlockBytes + page * kPageBytes, content + page * kPageBytes, kPageBytes)) {
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
