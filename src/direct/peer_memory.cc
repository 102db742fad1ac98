// See peer_memory.h.
#include "direct/peer_memory.h"

#include <fcntl.h>
#include <stdio.h>

#include "arena/arena.h"
#include "base/log.h"
#include "base/system_calls.h"

namespace headroom::direct {
namespace {

enum class Known : uint8_t { kNotTried, kThere, kRefused };
std::atomic<Known> known[node::kMaxMembers];
base::FutexLock opening;

bool try_open(const node::Session& session, int index) {
  if (index == session.index) {
    return true;
  }
  const node::Member& member = session.ledger->members[index];
  char path[64];
  (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", member.pid.load(std::memory_order_relaxed),
                 member.arena_descriptor.load(std::memory_order_relaxed));
  const long file = base::system_call(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
  if (base::is_error(file)) {
    base::log_debug("cannot open member %d's memory: error %ld", index, -file);
    return false;
  }
  const bool same = arena::inode_of(static_cast<int>(file)) == member.arena_inode.load(std::memory_order_acquire);
  const bool mapped = same && arena::map_peer_partition(index, static_cast<int>(file));
  (void)base::system_call(SYS_close, file);
  return mapped;
}

}  // namespace

bool open_peer_memory(const node::Session& session, int index) {
  Known now = known[index].load(std::memory_order_acquire);
  if (__builtin_expect(now == Known::kNotTried, 0)) {
    const base::LockHolder lock(opening);
    now = known[index].load(std::memory_order_relaxed);
    if (now == Known::kNotTried) {
      now = try_open(session, index) ? Known::kThere : Known::kRefused;
      known[index].store(now, std::memory_order_release);
    }
  }
  return now == Known::kThere;
}

}  // namespace headroom::direct
