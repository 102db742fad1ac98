// See records.h.
#include "rpipe/records.h"

#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "rpipe/address.h"
#include "rpipe/memory_file.h"
#include "rpipe/peers.h"

namespace headroom::rpipe {

namespace {

constexpr uint64_t kAtOnce = 64 << 10;

struct Records {
  std::vector<MemoryFile::Piece> pieces;
  uint64_t used = 0;  // of the last piece
  uint32_t count = 0;
  std::map<int, std::vector<uint64_t>> free;              // by rank
  std::map<std::pair<int, uint32_t>, uint32_t> openings;  // by rank and channel
};

Records* records = nullptr;
base::FutexLock lock;

Record* at(uint64_t offset) {
  for (const MemoryFile::Piece& piece : records->pieces) {
    if (piece.offset <= offset && offset < piece.offset + piece.bytes) {
      return reinterpret_cast<Record*>(piece.at + (offset - piece.offset));
    }
  }
  return nullptr;
}

Record* make_record(int rank, uint64_t& offset) {
  if (records->count == kMostRecords) {
    return nullptr;
  }
  if (records->pieces.empty() || records->used + kRecordBytes > kAtOnce) {
    const MemoryFile::Piece piece = own_memory().allocate_populated(kAtOnce);
    if (piece.at == nullptr) {
      return nullptr;
    }
    records->pieces.push_back(piece);
    records->used = 0;
  }
  const MemoryFile::Piece& piece = records->pieces.back();
  offset = piece.offset + records->used;
  auto* const record = reinterpret_cast<Record*>(piece.at + records->used);
  records->used += kRecordBytes;
  record->index = records->count++;
  std::atomic<uint64_t>& list = own_root().records[rank];
  record->next = list.load(std::memory_order_relaxed);
  list.store(offset, std::memory_order_release);  // a record without a key is passed over
  return record;
}

}  // namespace

void clear_record(Record& record) {
  record.more_marks.store(0, std::memory_order_relaxed);
  record.heap.store(0, std::memory_order_relaxed);
  record.heap_limit.store(0, std::memory_order_relaxed);
  record.taken.store(0, std::memory_order_relaxed);
  record.peer_closed.store(0, std::memory_order_relaxed);
  for (std::atomic<uint8_t>& mark : record.marks) {
    mark.store(0, std::memory_order_relaxed);
  }
  for (Line& line : record.lines) {
    line.number.store(0, std::memory_order_relaxed);
  }
}

Record* take_record(int rank, uint64_t& offset) {
  const base::LockHolder holder(lock);
  records = records == nullptr ? new Records : records;
  std::vector<uint64_t>& free = records->free[rank];
  if (free.empty()) {
    return make_record(rank, offset);
  }
  offset = free.back();
  free.pop_back();
  Record* const record = at(offset);
  clear_record(*record);
  return record;
}

uint32_t next_opening(int rank, uint32_t channel) {
  const base::LockHolder holder(lock);
  records = records == nullptr ? new Records : records;
  return records->openings[{rank, channel}]++;
}

void give_record_back(int rank, uint64_t offset) {
  const base::LockHolder holder(lock);
  at(offset)->key.store(0, std::memory_order_relaxed);
  at(offset)->state.store(static_cast<uint32_t>(EndState::kUnused), std::memory_order_relaxed);
  records->free[rank].push_back(offset);
}

void forget_records() {
  const base::LockHolder holder(lock);
  delete records;
  records = nullptr;
}

}  // namespace headroom::rpipe
