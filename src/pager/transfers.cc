// Transfers between blocks and the store: starting them, and acting on their ends.
//
// A transfer covers up to kTransferBlocks adjacent blocks; its tag is (first block, count). An error of the store ends the
// process with a message: memory that cannot be written or read back is never silently lost.
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "pager/state.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using trace::Counter;

constexpr uint64_t kRoomPiece = 64 << 20;

/// Sets room in the file aside, in large pieces; the transfer's own bytes alone where the disk is nearly full.
void ensure_room_in_file(uint64_t offset, uint64_t bytes) {
  const uint64_t piece = offset / kRoomPiece;
  uint64_t& bits = state.room_reserved[piece / 64];
  const uint64_t bit = uint64_t{1} << (piece % 64);
  if ((bits & bit) != 0) {
    return;
  }
  if (reserve_store_room(state.file, piece * kRoomPiece, kRoomPiece) == 0) {
    bits |= bit;
    return;
  }
  const int error = reserve_store_room(state.file, offset, bytes);
  if (error != 0) {
    write_done(arena::block_of(offset), bytes / arena::kBlockBytes, error);
  }
}

}  // namespace

bool can_transfer() { return state.store->in_flight() < Store::kDepth; }

void start_transfer(bool write, uint64_t first, uint64_t count) {
  const uint64_t offset = first * arena::kBlockBytes;
  const uint64_t bytes = count * arena::kBlockBytes;
  if (write) {
    ensure_room_in_file(offset, bytes);
  }
  trace::count(Counter::kTransfers);
  state.store->submit({write, offset, reinterpret_cast<void*>(state.partition->alias + offset), bytes, (first << 8) | count});
}

bool collect_transfers() {
  Completion done[16];
  bool some = false;
  for (;;) {
    const int found = state.store->collect(done, 16);
    for (int index = 0; index < found; ++index) {
      const uint64_t first = done[index].tag >> 8;
      const uint64_t count = done[index].tag & 0xff;
      if (done[index].error == 0) {
        trace::count(done[index].write ? Counter::kBytesWritten : Counter::kBytesRead, count * arena::kBlockBytes);
      }
      if (done[index].write) {
        write_done(first, count, done[index].error);
      } else {
        read_done(first, count, done[index].error);
      }
    }
    some = some || found > 0;
    if (found < 16) {
      return some;
    }
  }
}

}  // namespace headroom::pager
