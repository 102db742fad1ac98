// See ended_transfers.h.
#include "pager/ended_transfers.h"

#include "base/log.h"
#include "pager/block_words.h"
#include "pager/checksums.h"
#include "pager/eviction.h"
#include "pager/fatal_errors.h"
#include "pager/forked_children.h"
#include "pager/page_eviction.h"
#include "pager/placing.h"
#include "pager/present_pages.h"
#include "pager/read_buffers.h"
#include "pager/serving.h"
#include "pager/single_pages.h"
#include "pager/state.h"
#include "pager/store_room.h"
#include "pager/store_speed.h"
#include "pager/streams.h"
#include "pager/transfer_tags.h"
#include "pager/untouched_pages.h"
#include "pager/waiting_accesses.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using namespace arena;
using trace::Counter;

/// Whether the content that was read is what was written, as far as it will be used.
bool is_right(TransferKind kind, uint64_t number, uint64_t bytes, const char* buffer) {
  if (kind == TransferKind::kFill) {
    return fill_is_right(number);
  }
  const uint64_t offset = number * (kind == TransferKind::kPages ? kPageBytes : kBlockBytes);
  const void* read = buffer != nullptr ? buffer : reinterpret_cast<const void*>(state.partition->alias + offset);
  return compare_with_written(offset, read, bytes);
}

[[noreturn]] void die_of_damage(uint64_t bytes) {
  base::die(
      "%llu KiB read back from the storage in %s are not what was written there, say their checksums; the disk or its driver "
      "damages data, so choose another --storage",
      static_cast<unsigned long long>(bytes >> 10), base::settings().storage);
}

void read_done(uint64_t first, uint64_t count) {
  for (uint64_t block = first; block < first + count; ++block) {
    change_word(word_of(block), kStateMask, kResident | kHasCopy);
    state.resident.loaded(block);
  }
  end_satisfied(first, count);
  // Accesses that wait are served first, so that a write maps its block writable at once.
  (void)serve_waiting(first, count);
  for (uint64_t block = first; block < first + count;) {
    uint64_t run = 0;
    while (block + run < first + count && (word_of(block + run).load(std::memory_order_relaxed) & (kMapped | kMarker)) == 0) {
      ++run;
    }
    if (run == 0) {
      ++block;
      continue;
    }
    const View view = view_of_run(*state.partition, block, run);
    const bool writable = is_likely_written(block) && !has_fork_children();
    state.engine->map(view, writable);
    for (uint64_t mapped = block; mapped < block + run; ++mapped) {
      change_word(word_of(mapped), 0, kMapped | (writable ? kDirty | kWritable : 0));
    }
    trace::count(Counter::kBlocksReadWritable, writable ? run : 0);
    block += run;
  }
}

void page_read_done(uint64_t block, uint32_t page) {
  place_page(block, page);
  // A thread that waits for this very page needs no room. The others may, and the room may be this block's: so they come last.
  if (!serve_waiting(block, 1, page)) {
    map_page_read_ahead(block, page);
  }
  (void)serve_waiting(block, 1);
}

void act_on(const Completion& done) {
  const TransferKind kind = kind_of(done.tag);
  const uint64_t number = number_of(done.tag);
  const uint64_t count = count_of(done.tag);
  const uint64_t unit = kind == TransferKind::kPages ? kPageBytes : kBlockBytes;
  const uint64_t bytes = count * unit;
  const auto page = static_cast<uint32_t>(number % kPagesOfBlock);
  if (done.write) {
    note_storage_written(kind == TransferKind::kPages ? number / kPagesOfBlock : number,
                         kind == TransferKind::kPages ? 1 : count);
    kind == TransferKind::kPages ? note_written_pages(number / kPagesOfBlock, 1, run_of_pages(page, count))
                                 : note_written_pages(number, count, kAllPages);
  }
  if (done.write && is_lack_of_room(done.error)) {
    note_lack_of_store_room(number * unit, done.error);
    kind == TransferKind::kPages ? page_write_lacked_room(number / kPagesOfBlock, page, count)
                                 : write_lacked_room(number, count);
    return;
  }
  if (done.error != 0) {
    die_of_transfer(done.write, bytes, done.error);
  }
  if (done.write) {
    note_written_to_storage(number * unit);
  }
  const char* buffer = done.write || kind == TransferKind::kFill ? nullptr
                       : kind == TransferKind::kPages            ? content_of_page(number / kPagesOfBlock, page)
                                                                 : read_buffer_of(number);
  if (!done.write && !is_right(kind, number, bytes, buffer)) {
    die_of_damage(bytes);
  }
  trace::count(done.write ? Counter::kBytesWritten : Counter::kBytesRead, done.write ? bytes : take_bytes_from_disk(bytes));
  if (kind == TransferKind::kPages && done.write) {
    page_write_done(number / kPagesOfBlock);
  } else if (kind == TransferKind::kPages) {
    page_read_done(number / kPagesOfBlock, page);
  } else if (done.write) {
    write_done(number, count);
  } else {
    if (kind == TransferKind::kFill) {
      fill_done(number);
    }
    if (buffer != nullptr) {
      place_content(number, count, buffer);
      give_back_read_buffer(number);
      trace::count(Counter::kBytesReadBuffered, bytes);
    }
    read_done(number, count);
  }
  if (!done.write) {
    note_read_ended(done.tag);
  }
}

}  // namespace

bool collect_transfer() {
  Completion done = {};
  if (state.store->collect(&done, 1) == 0) {
    return false;
  }
  if (!done.write && kind_of(done.tag) == TransferKind::kBlocks && !state.turn_is_cut) {
    note_arrival(number_of(done.tag), count_of(done.tag));
    state.collects = true;
    read_streams_ahead();
    state.collects = false;
  }
  act_on(done);
  return true;
}

bool collect_transfers() {
  // One by one: acting on an end may begin another transfer, which takes the place of the one that has ended, not of several.
  Completion done = {};
  bool some = false;
  for (; state.store->collect(&done, 1) > 0; some = true) {
    act_on(done);
  }
  return some;
}

}  // namespace headroom::pager
