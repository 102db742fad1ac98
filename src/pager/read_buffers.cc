// See read_buffers.h.
#include "pager/read_buffers.h"

#include <sys/mman.h>

#include <algorithm>

#include "pager/other_memory.h"
#include "pager/state.h"

namespace headroom::pager {
namespace {

constexpr int kBuffers = 16;  // of 1 MiB: beyond, the disk reads no faster
constexpr uint64_t kBufferBytes = kTransferBlocks * arena::kBlockBytes;
constexpr uint64_t kHugePageBytes = 2 << 20;
constexpr int64_t kMemoryForEach = 48 * static_cast<int64_t>(kBufferBytes);
constexpr int kEnough = 4;  // to keep the disk busy

struct Buffer {
  bool used;
  uint64_t first;  // block
  uint64_t count;
};

Buffer buffers[kBuffers] = {};
char* memory = nullptr;
int used = 0;
int filled = 0;  // of the first ones, since they were emptied

/// As many as take a forty-eighth of the memory that there is for each rank that computes at the same time.
int how_many() {
  if (state.partition->blocks_are_pages) {
    return 0;
  }
  const node::Ledger& ledger = *state.session->ledger;
  const uint32_t alive = ledger.alive.load(std::memory_order_relaxed);
  const int64_t ranks = std::min(alive, ledger.slots());
  const int64_t many = ledger.budget / (ranks > 0 ? ranks : 1) / kMemoryForEach;
  return static_cast<int>(std::min<int64_t>(many, kBuffers));
}

}  // namespace

bool open_read_buffers() {
  auto* reserved = static_cast<char*>(base::reserve_memory(kBuffers * kBufferBytes + kHugePageBytes));
  if (reserved == nullptr) {
    return false;
  }
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(reserved) + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  memory = reinterpret_cast<char*>(begin);
  (void)base::system_call(SYS_madvise, begin, kBuffers * kBufferBytes, MADV_HUGEPAGE);
  (void)base::system_call(SYS_madvise, begin, kBuffers * kBufferBytes, MADV_DONTFORK);
  return true;
}

bool must_wait_for_read_buffer() { return used >= kEnough && used >= how_many(); }

char* take_read_buffer(uint64_t first, uint64_t count) {
  if (count > kTransferBlocks || used >= how_many()) {
    return nullptr;
  }
  int index = 0;  // the first ones first, so that no more are filled than are needed
  while (buffers[index].used) {
    ++index;
  }
  if (index >= filled) {
    filled = index + 1;
    count_more_other_memory(static_cast<int64_t>(kBufferBytes));
  }
  buffers[index] = {true, first, count};
  ++used;
  return memory + static_cast<uint64_t>(index) * kBufferBytes;
}

char* read_buffer_of(uint64_t first) {
  for (int index = 0; used > 0 && index < kBuffers; ++index) {
    if (buffers[index].used && buffers[index].first == first) {
      return memory + static_cast<uint64_t>(index) * kBufferBytes;
    }
  }
  return nullptr;
}

void give_back_read_buffer(uint64_t first) {
  for (Buffer& buffer : buffers) {
    if (buffer.used && buffer.first == first) {
      buffer.used = false;
      --used;
      return;
    }
  }
}

void empty_read_buffers() {
  if (filled > 0 && used == 0) {
    filled = 0;
    (void)base::system_call(SYS_madvise, memory, kBuffers * kBufferBytes, MADV_DONTNEED);
  }
}

}  // namespace headroom::pager
