// Transfers between blocks and the store: starting them, and acting on their ends.
//
// A transfer covers up to kTransferBlocks adjacent blocks, or pages of one block. An error of the store ends the process with a
// message: memory that cannot be written or read back is never silently lost. But blocks that only lacked room to be written
// are still here, and stay (store_room.h).
#include <string.h>

#include "arena/whole_blocks.h"
#include "base/log.h"
#include "pager/checksums.h"
#include "pager/read_buffers.h"
#include "pager/state.h"
#include "pager/store_room.h"
#include "pager/store_speed.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using trace::Counter;

// The tag of a transfer: what it is, the first block or page of the partition, and how many.
constexpr int kKindShift = 62;
constexpr int kNumberShift = 8;
enum Kind : uint64_t { kBlocks, kPages, kFill };

uint64_t tag_of(Kind kind, uint64_t number, uint64_t count) { return kind << kKindShift | number << kNumberShift | count; }

Kind kind_of(uint64_t tag) { return static_cast<Kind>(tag >> kKindShift); }
uint64_t number_of(uint64_t tag) { return tag << 2 >> (kNumberShift + 2); }
uint64_t count_of(uint64_t tag) { return tag & 0xff; }

/// Whether the content that was read is what was written, as far as it will be used.
bool is_right(Kind kind, uint64_t number, uint64_t bytes, const char* buffer) {
  if (kind == kFill) {
    return fill_is_right(number);
  }
  const uint64_t offset = number * (kind == kPages ? arena::kPageBytes : arena::kBlockBytes);
  const void* read = buffer != nullptr ? buffer : reinterpret_cast<const void*>(state.partition->alias + offset);
  return compare_with_written(offset, read, bytes);
}

[[noreturn]] void die_of_damage(uint64_t bytes) {
  base::die(
      "%llu KiB read back from the storage in %s are not what was written there, say their checksums; the disk or its driver "
      "damages data, so choose another --storage",
      static_cast<unsigned long long>(bytes >> 10), base::settings().storage);
}

/// The one way into the store. A caller that begins a transfer has asked can_transfer(), and code that made room since then has
/// left a place.
void submit(const Transfer& transfer) {
  if (!can_transfer()) {
    base::die("more than %d transfers were begun at once; this is a fault in Headroom, please report it", Store::kDepth);
  }
  trace::count(Counter::kTransfers);
  if (transfer.write) {
    note_write_begun(transfer.offset);
  } else {
    note_read_begun(transfer.tag, transfer.bytes);
  }
  state.store->submit(transfer);
}

void act_on(const Completion& done) {
  const Kind kind = kind_of(done.tag);
  const uint64_t number = number_of(done.tag);
  const uint64_t count = count_of(done.tag);
  const uint64_t unit = kind == kPages ? arena::kPageBytes : arena::kBlockBytes;
  const uint64_t bytes = count * unit;
  const auto page = static_cast<uint32_t>(number % kPagesOfBlock);
  if (done.write && is_lack_of_room(done.error)) {
    note_lack_of_store_room(number * unit, done.error);
    kind == kPages ? page_write_lacked_room(number / kPagesOfBlock, page, count) : write_lacked_room(number, count);
    return;
  }
  if (done.error != 0) {
    die_of_transfer(done.write, bytes, done.error);
  }
  if (done.write) {
    note_written_to_storage(number * unit);
  }
  const char* buffer = done.write || kind == kFill ? nullptr
                       : kind == kPages            ? content_of_page(number / kPagesOfBlock, page)
                                                   : read_buffer_of(number);
  if (!done.write && !is_right(kind, number, bytes, buffer)) {
    die_of_damage(bytes);
  }
  trace::count(done.write ? Counter::kBytesWritten : Counter::kBytesRead, bytes);
  if (kind == kPages && done.write) {
    page_write_done(number / kPagesOfBlock);
  } else if (kind == kPages) {
    page_read_done(number / kPagesOfBlock, page);
  } else if (done.write) {
    write_done(number, count);
  } else {
    if (kind == kFill) {
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

void die_of_transfer(bool write, uint64_t bytes, int error) {
  const auto kib = static_cast<unsigned long long>(bytes >> 10);
  if (write) {
    base::die(
        "writing %llu KiB of memory to the storage in %s failed: %s; this memory has nowhere to go, so the run ends; "
        "free room there or choose another directory with --storage, or raise --memory",
        kib, base::settings().storage, strerror(error));
  }
  base::die(
      "reading %llu KiB back from the storage in %s failed: %s; memory that was there is lost, so the run ends; check "
      "the disk, or choose another --storage",
      kib, base::settings().storage, strerror(error));
}

bool can_transfer() { return state.store->in_flight() < Store::kDepth; }

void start_transfer(bool write, uint64_t first, uint64_t count) {
  const uint64_t offset = first * arena::kBlockBytes;
  const uint64_t bytes = count * arena::kBlockBytes;
  if (write) {
    note_written(offset, reinterpret_cast<const void*>(state.partition->alias + offset), bytes);
  }
  char* buffer = write ? nullptr : take_read_buffer(first, count);
  if (!write && buffer == nullptr && state.partition->blocks_are_pages) {
    for (uint64_t block = first; block < first + count; ++block) {
      if (arena::make_whole(*state.partition, block, {first, count}) != base::Status::kOk) {
        die_without_memory();
      }
    }
  }
  void* memory = buffer != nullptr ? buffer : reinterpret_cast<void*>(state.partition->alias + offset);
  submit({write, offset, memory, bytes, tag_of(kBlocks, first, count)});
}

void start_page_transfer(bool write, uint64_t block, uint64_t first_page, uint64_t count, void* memory) {
  const uint64_t number = block * kPagesOfBlock + first_page;
  if (write) {
    note_written(number * arena::kPageBytes, memory, count * arena::kPageBytes);
  }
  submit({write, number * arena::kPageBytes, memory, count * arena::kPageBytes, tag_of(kPages, number, count)});
}

void start_fill_transfer(uint64_t block, void* buffer) {
  submit({false, block * arena::kBlockBytes, buffer, arena::kBlockBytes, tag_of(kFill, block, 1)});
}

bool collect_transfer() {
  Completion done = {};
  if (state.store->collect(&done, 1) == 0) {
    return false;
  }
  if (!done.write && kind_of(done.tag) == kBlocks && !state.turn_is_cut) {
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
