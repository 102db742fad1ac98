// The child's side of fork(); what happens is described in fork.cc.
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/all_rights.h"
#include "base/kernel_abi.h"
#include "base/log.h"
#include "base/own_descriptors.h"
#include "base/passed_descriptors.h"
#include "pager/fork.h"
#include "pager/fork_channel.h"
#include "pager/forked_children.h"
#include "pager/forked_memory.h"
#include "pager/state.h"
#include "pager/transition_lock.h"
#include "pager/wake_latency.h"

namespace headroom::pager {
namespace {

using namespace arena;
using base::system_call;

bool watch_in_child(int descriptor, uintptr_t address, uint64_t bytes) {
  uffdio_register request = {};
  request.range = {address, bytes};
  request.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR;
  return bytes == 0 || !base::is_error(system_call(SYS_ioctl, descriptor, UFFDIO_REGISTER, &request));
}

void map_in_child(uintptr_t address, uint64_t bytes, int descriptor, uint64_t offset) {
  const int flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE | (descriptor < 0 ? MAP_ANONYMOUS : 0);
  if (bytes > 0) {
    (void)system_call(SYS_mmap, address, bytes, PROT_READ | PROT_WRITE, flags, descriptor, offset);
    advise_small_pages(address, bytes);
  }
}

template <typename Each>
void for_each_view(Each each) {
  const Partition& partition = *state.partition;
  each(partition.base, partition.committed.load(std::memory_order_relaxed), 0);
  const int regions = partition.static_region_count.load(std::memory_order_relaxed);
  for (int index = 0; index < regions; ++index) {
    const StaticRegion& region = partition.static_regions[index];
    each(region.address, region.bytes, region.offset);
  }
}

/// Should the last writer of the pipe disappear, the kernel kills this process: what it waits for would never come, be it in a
/// system call. (Signal-driven input; the parent disarms it before it lets
/// go of us.)
bool arm_lifeline() {
  const int pipe = fork_channel.lifeline_read;
  return !base::is_error(system_call(SYS_fcntl, pipe, F_SETOWN, system_call(SYS_getpid))) &&
         !base::is_error(system_call(SYS_fcntl, pipe, 10 /* F_SETSIG */, SIGKILL)) &&
         !base::is_error(system_call(SYS_fcntl, pipe, F_SETFL, O_ASYNC));
}

// What the child keeps for its parent's sake, and how it is known: the program may have closed it and opened something else.
struct Kept {
  int descriptor = -1;
  ino_t file = 0;
};
Kept kept[2];

Kept keep(int descriptor) {
  struct stat status = {};
  return fstat(descriptor, &status) == 0 ? Kept{descriptor, status.st_ino} : Kept{};
}

bool receive_by_faults(int socket) {
  if (state.engine->kind() == base::EngineChoice::kSigsegv) {
    return false;
  }
  const int descriptor = open_child_userfaultfd(!state.engine->serves_kernel());
  if (descriptor < 0) {
    return false;
  }
  bool watched = true;
  for_each_view([&](uintptr_t address, uint64_t bytes, uint64_t offset) {
    map_in_child(address, bytes, state.partition->descriptor, offset);
    watched = watched && watch_in_child(descriptor, address, bytes);
  });
  char answer = 0;
  // The descriptor stays open here too: were the parent to die, an access would wait rather than read zeros.
  if (watched && arm_lifeline() && base::send_descriptors(socket, 'U', {descriptor}) && read_all(socket, &answer, 1) &&
      answer == 'k') {
    return true;
  }
  base::close_own(descriptor);
  return false;
}

void receive_by_stream(int socket) {
  for_each_view([](uintptr_t address, uint64_t bytes, uint64_t) { map_in_child(address, bytes, -1, 0); });
  (void)write_all(socket, "S", 1);
  uint64_t block = 0;
  while (read_all(socket, &block, sizeof block) && block != kEndOfStream) {
    const View view = view_of_block(*state.partition, block);
    static char rest[kPageBytes];
    if (!read_all(socket, reinterpret_cast<void*>(view.address), view.bytes)) {
      break;
    }
    for (uint64_t left = kBlockBytes - view.bytes; left > 0;) {  // the end of a static region's last block
      const uint64_t piece = std::min<uint64_t>(left, sizeof rest);
      if (!read_all(socket, rest, piece)) {
        break;
      }
      left -= piece;
    }
  }
  if (block != kEndOfStream) {
    base::die(
        "a forked child could not receive its parent's memory: the parent has ended meanwhile, see its message; let it wait "
        "for "
        "the child, or have the child made with vfork() or posix_spawn(), which need no copy");
  }
}

}  // namespace

void finish_fork_in_child() {
  const int socket = fork_channel.child_end;
  if (socket >= 0) {
    base::close_own(fork_channel.parent_end);
    base::close_own(fork_channel.lifeline_write);
    if (!receive_by_faults(socket)) {
      disarm_lifeline(fork_channel.lifeline_read);
      receive_by_stream(socket);
    }
    put_held_copies_in_place();
    take_access_away_in_child();
    kept[0] = keep(socket);
    kept[1] = keep(fork_channel.lifeline_read);
  }
  drop_children_in_child();
  forget_forked_in_child();
  for (int file = 0; file < state.files.count; ++file) {
    base::close_own(state.files.descriptors[file]);
  }
  base::close_own(state.partition->descriptor);
  base::close_own(state.partition->table_descriptor);
  base::close_own(state.engine->descriptor());
  forget_wake_latency_in_child();
}

void finish_fork_in_grandchild() {
  for (const Kept& each : kept) {
    if (each.descriptor >= 0 && keep(each.descriptor).file == each.file) {
      base::close_own(each.descriptor);
    }
  }
}

namespace {

bool is_alone = false;  // make_private_in_child() was called by the only thread, whose signals are blocked

bool is_only_thread() {
  struct stat status = {};
  const long result = system_call(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &status, 0);
  return !base::is_error(result) && status.st_nlink == 2 + 1;  // a directory in it for each
}

/// Writes to the page of `byte`, without changing what another thread may write there at the time. (Clang makes a mere look of
/// an atomic operation that adds nothing.)
void write_to(char* byte) {
  char now = __atomic_load_n(byte, __ATOMIC_RELAXED);
  (void)__atomic_compare_exchange_n(byte, &now, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

bool is_zero(uintptr_t begin, uint64_t bytes) {
  const auto* words = reinterpret_cast<const uint64_t*>(begin);
  for (uint64_t index = 0; index < bytes / sizeof(uint64_t); ++index) {
    if (words[index] != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

void make_private_in_child() {
  const uint64_t signals = block_signals();
  is_alone = is_only_thread();
  for_each_view([](uintptr_t address, uint64_t bytes, uint64_t) {
    base::with_all_rights(address, bytes, [](uintptr_t begin, uint64_t part) {
      for (uintptr_t page = begin & ~(kPageBytes - 1); page < begin + part; page += kPageBytes) {
        // The arena's addresses of blocks that are static data are nobody's, and nobody would serve them.
        uint64_t offset = 0;
        if (!find_offset(*state.partition, page, offset)) {
          continue;
        }
        const View whole = view_of_block(*state.partition, block_of(offset));
        if (is_alone && whole.address == page && page + whole.bytes <= begin + part && whole.bytes % kPageBytes == 0 &&
            is_zero(page, whole.bytes)) {
          // Nobody's page of zeros, as it was for the parent: no memory for that. (What another thread, or a signal's
          // handler, wrote there after the look would be lost.)
          map_in_child(page, whole.bytes, -1, 0);
          page += whole.bytes - kPageBytes;
          continue;
        }
        if (const View view = view_of_block(*state.partition, block_of(offset)); page - view.address < view.bytes) {
          // Written to: a page of zeros that was only read is not the child's own, and goes when the parent gives up its own.
          write_to(reinterpret_cast<char*>(page));
        }
      }
    });
  });
  restore_signals(signals);
}

}  // namespace headroom::pager
