// See peer_memory.h.
#include "direct/peer_memory.h"

#include <fcntl.h>
#include <stdio.h>

#include "arena/arena.h"
#include "base/kernel_abi.h"
#include "base/log.h"
#include "base/own_descriptors.h"
#include "base/system_calls.h"

namespace headroom::direct {
namespace {

enum class Known : uint8_t { kNotTried, kThere, kRefused };
std::atomic<Known> known[node::kMaxMembers];
base::FutexLock opening;

// The stretches of each peer's partition that were used already: a bit each. A stretch is what the kernel maps at a fault
// anyway where it reads ("fault around"), and divides a block, so that it is held when a part of it is.
constexpr uint64_t kStretchBytes = 64 << 10;
constexpr uint64_t kWordBits = 64;
static_assert(arena::kBlockBytes % kStretchBytes == 0);
std::atomic<uint64_t>* used[node::kMaxMembers];
int own_index = -1;
uint64_t bytes_of_members[node::kMaxMembers];  // mapped here; of a member that has left, 0

std::atomic<Known> blocks_known[node::kMaxMembers];
arena::BlockWord* blocks_of_members[node::kMaxMembers];

/// A file that a member has open; -1 if that cannot be had.
int open_file_of(const node::Member& member, int descriptor, uint64_t inode) {
  char path[64];
  const int pid = member.pid.load(std::memory_order_relaxed);
  (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, descriptor);
  const int file = base::own(base::system_call(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0));
  if (file < 0) {
    base::log_debug(base::Part::kDirect, "cannot open memory of process %d: error %d", pid, -file);
    return -1;
  }
  if (arena::inode_of(file) != inode) {
    base::close_own(file);
    return -1;
  }
  return file;
}

bool try_open(const node::Session& session, int index) {
  if (index == session.index) {
    return true;
  }
  const node::Member& member = session.ledger->members[index];
  const int file = open_file_of(member, member.partition.descriptor.load(std::memory_order_relaxed),
                                member.partition.inode.load(std::memory_order_acquire));
  if (file < 0) {
    return false;
  }
  const uint64_t bytes = member.partition.bytes.load(std::memory_order_relaxed);
  const bool mapped = arena::map_peer_partition(index, file, bytes);
  base::close_own(file);
  if (mapped) {
    own_index = session.index;
    bytes_of_members[index] = bytes;
    used[index] = static_cast<std::atomic<uint64_t>*>(base::reserve_memory(arena::partition_bytes() / kStretchBytes / 8));
  }
  return mapped;
}

bool try_open_blocks(const node::Session& session, int index) {
  const node::Member& member = session.ledger->members[index];
  const int file = open_file_of(member, member.partition.table_descriptor.load(std::memory_order_relaxed),
                                member.partition.table_inode.load(std::memory_order_acquire));
  if (file >= 0) {
    blocks_of_members[index] = arena::map_block_table(file);
    base::close_own(file);
  }
  return blocks_of_members[index] != nullptr;
}

/// Whether `open` has succeeded, which is tried once.
template <typename Open>
bool open_once(std::atomic<Known>& outcome, Open open) {
  Known now = outcome.load(std::memory_order_acquire);
  if (__builtin_expect(now == Known::kNotTried, 0)) {
    const base::LockHolder lock(opening);
    now = outcome.load(std::memory_order_relaxed);
    if (now == Known::kNotTried) {
      now = open() ? Known::kThere : Known::kRefused;
      outcome.store(now, std::memory_order_release);
    }
  }
  return now == Known::kThere;
}

/// Notes that the stretches are used; whether all of them were already.
bool note_use(std::atomic<uint64_t>* words, uint64_t first, uint64_t end) {
  bool all = true;
  for (uint64_t stretch = first; stretch < end; ++stretch) {
    std::atomic<uint64_t>& word = words[stretch / kWordBits];
    const uint64_t bit = uint64_t{1} << stretch % kWordBits;
    const uint64_t before = word.load(std::memory_order_relaxed);
    if ((before & bit) == 0) {
      word.fetch_or(bit, std::memory_order_relaxed);
      all = false;
    }
  }
  return all;
}

}  // namespace

bool open_peer_memory(const node::Session& session, int index) {
  return open_once(known[index], [&] { return try_open(session, index); });
}

arena::BlockWord* open_peer_blocks(const node::Session& session, int index) {
  return open_once(blocks_known[index], [&] { return try_open_blocks(session, index); }) ? blocks_of_members[index] : nullptr;
}

void empty_memory_of_who_left(const node::Session& session) {
  for (int next = 0; const node::Member& member : session.ledger->used_members()) {
    const int index = next++;
    if (index == session.index || known[index].load(std::memory_order_acquire) != Known::kThere ||
        bytes_of_members[index] == 0 || node::state_of(member) != node::MemberState::kLeft ||
        member.counters[static_cast<int>(trace::Counter::kForks)].load(std::memory_order_relaxed) != 0) {
      continue;
    }
    (void)base::system_call(SYS_madvise, arena::partition_base(index), bytes_of_members[index], MADV_REMOVE);
    bytes_of_members[index] = 0;
  }
}

void expect_use(const char* begin, uint64_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(begin);
  const int index = arena::partition_at(address);
  if (bytes == 0 || index < 0 || index == own_index || used[index] == nullptr) {
    return;
  }
  const uint64_t offset = address - arena::partition_base(index);
  const uint64_t first = offset / kStretchBytes;
  const uint64_t end = (offset + bytes + kStretchBytes - 1) / kStretchBytes;
  if (!note_use(used[index], first, end)) {
    // A page that is mapped for reading is mapped for writing too: nobody asks to be told of writes to shared memory.
    (void)base::system_call(SYS_madvise, arena::partition_base(index) + first * kStretchBytes, (end - first) * kStretchBytes,
                            MADV_POPULATE_READ);
  }
}

}  // namespace headroom::direct
