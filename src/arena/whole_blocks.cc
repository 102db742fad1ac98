// See whole_blocks.h.
#include "arena/whole_blocks.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/kernel_abi.h"
#include "base/system_calls.h"
#include "trace/counters.h"

namespace headroom::arena {
namespace {

using base::is_error;
using base::Status;
using base::system_call;

/// While it lives, a page made for `block` is no larger than a block; unless the guard is refused.
class Guard {
 public:
  Guard(const Partition& partition, uint64_t block, Run at_rest) : partition_(partition) {
    const uint64_t other = block ^ 1;
    const uint64_t begin = other * kBlockBytes;
    const long data = system_call(SYS_lseek, partition.descriptor, begin, SEEK_DATA);
    if (!is_error(data) && static_cast<uint64_t>(data) < begin + kBlockBytes) {
      return;  // it has a page
    }
    const uint64_t word = partition.blocks[other].load(std::memory_order_acquire);
    const bool is_out = state_of(word) == kFresh || state_of(word) == kStored;
    const bool is_used = (word & (kHoldMask | kMapped)) != 0;
    refused_ = is_used || !(is_out || other - at_rest.first < at_rest.count);
    if (!refused_) {
      page_ = begin + kBlockBytes - kPageBytes;
      refused_ = is_error(system_call(SYS_madvise, partition.alias + page_, kPageBytes, MADV_POPULATE_READ));
    }
  }
  ~Guard() {
    if (page_ != 0) {
      punch_bytes(partition_, page_, kPageBytes);
    }
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  [[nodiscard]] bool is_refused() const { return refused_; }

 private:
  const Partition& partition_;
  uint64_t page_ = 0;  // its offset; never the first of the file
  bool refused_ = false;
};

}  // namespace

Status make_whole(const Partition& partition, uint64_t block, Run at_rest) {
  if (!partition.blocks_are_pages) {
    return populate(partition, block, 1);
  }
  const Guard guard(partition, block, at_rest);
  if (guard.is_refused()) {
    return populate(partition, block, 1);
  }
  long result = 0;
  do {
    result = system_call(SYS_fallocate, partition.descriptor, 0, block * kBlockBytes, kBlockBytes);
  } while (result == -EINTR);
  if (is_error(result)) {
    return Status::kNoMemory;
  }
  trace::count(trace::Counter::kBlocksMadeWhole);
  // So far it is only set aside, and lseek() says that nothing is there; a guard's page would be a part of it. The first touch
  // makes it.
  return is_error(system_call(SYS_madvise, partition.alias + block * kBlockBytes, kPageBytes, MADV_POPULATE_WRITE))
             ? Status::kNoMemory
             : Status::kOk;
}

Status write_content(const Partition& partition, uint64_t offset, const char* content, uint64_t bytes) {
  while (bytes > 0) {
    const long written = system_call(SYS_pwrite64, partition.descriptor, content, bytes, offset);
    if (is_error(written) && written != -EINTR) {
      return Status::kNoMemory;
    }
    const uint64_t done = written > 0 ? static_cast<uint64_t>(written) : 0;
    offset += done;
    content += done;
    bytes -= done;
  }
  return Status::kOk;
}

bool copy_page(const Partition& partition, uint64_t offset, uintptr_t page) {
  if (!partition.blocks_are_pages) {
    return system_call(SYS_pwrite64, partition.descriptor, page, kPageBytes, offset) == static_cast<long>(kPageBytes);
  }
  const uintptr_t place = partition.alias + offset;
  if (is_error(system_call(SYS_madvise, place, kPageBytes, MADV_POPULATE_WRITE))) {
    return false;
  }
  const iovec from = {reinterpret_cast<void*>(page), kPageBytes};
  const iovec to = {reinterpret_cast<void*>(place), kPageBytes};
  const long copied = system_call(SYS_process_vm_readv, system_call(SYS_getpid), &to, 1, &from, 1, 0);
  if (copied == -EPERM || copied == -ENOSYS) {  // a filter forbids it; mapped memory can nearly always be read
    memcpy(to.iov_base, from.iov_base, kPageBytes);
    return true;
  }
  return copied == static_cast<long>(kPageBytes);
}

}  // namespace headroom::arena
