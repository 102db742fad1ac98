// Starting transfers between blocks and the store; ended_transfers.cc acts on their ends.
//
// A transfer covers up to kTransferBlocks adjacent blocks, or pages of one block. An error of the store ends the process with a
// message: memory that cannot be written or read back is never silently lost. But blocks that only lacked room to be written
// are still here, and stay (store_room.h).
#include "pager/transfers.h"

#include "arena/whole_blocks.h"
#include "base/log.h"
#include "pager/block_words.h"
#include "pager/checksums.h"
#include "pager/fatal_errors.h"
#include "pager/read_buffers.h"
#include "pager/state.h"
#include "pager/store_room.h"
#include "pager/store_speed.h"
#include "pager/transfer_tags.h"
#include "pager/untouched_pages.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using trace::Counter;

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

}  // namespace

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
  submit({write, offset, memory, bytes, tag_of(TransferKind::kBlocks, first, count)});
}

void start_read(uint64_t first, uint64_t count) {
  note_read_pages(first, count, UINT64_MAX);
  for (uint64_t block = first; block < first + count; ++block) {
    change_word(word_of(block), arena::kStateMask | arena::kDirty | arena::kWritable | arena::kMapped | arena::kMarker,
                arena::kReading);
  }
  start_transfer(false, first, count);
}

void start_page_transfer(bool write, uint64_t block, uint64_t first_page, uint64_t count, void* memory) {
  const uint64_t number = block * kPagesOfBlock + first_page;
  if (write) {
    note_written(number * arena::kPageBytes, memory, count * arena::kPageBytes);
  }
  submit({write, number * arena::kPageBytes, memory, count * arena::kPageBytes, tag_of(TransferKind::kPages, number, count)});
}

void start_fill_transfer(uint64_t block, void* buffer) {
  submit({false, block * arena::kBlockBytes, buffer, arena::kBlockBytes, tag_of(TransferKind::kFill, block, 1)});
}

}  // namespace headroom::pager
