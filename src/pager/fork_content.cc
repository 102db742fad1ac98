// See fork_content.h.
#include "pager/fork_content.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "base/kernel_abi.h"
#include "base/log.h"
#include "pager/checksums.h"
#include "pager/present_pages.h"
#include "pager/state.h"
#include "pager/untouched_pages.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using namespace arena;
using base::system_call;

char* bounce = nullptr;  // one block, for content that is on storage
char* moved = nullptr;   // one block, of which sharing ends
char* zeros = nullptr;

/// Reads a block that is on storage into `bounce`; 0, or -errno.
long read_back(uint64_t block) {
  const StorePlace place = place_of(state.files, block * kBlockBytes);
  for (uint64_t done = 0; done < kBlockBytes;) {
    const long bytes = system_call(SYS_pread64, place.descriptor, bounce + done, kBlockBytes - done, place.offset + done);
    if (base::is_error(bytes) && bytes != -EINTR) {
      return bytes;
    }
    const uint64_t read = base::is_error(bytes) ? 0 : static_cast<uint64_t>(bytes) / kPageBytes * kPageBytes;
    if (read == 0 && bytes != -EINTR) {
      return -EIO;
    }
    done += read;
  }
  const auto zeros_there = static_cast<uint64_t>(bytes_of(zero_pages_on_storage(block, kAllPages)));
  trace::count(trace::Counter::kBytesRead, kBlockBytes - zeros_there);
  return 0;
}

/// One step of copy_to_child: what was done is added to `done`.
long copy_step(int descriptor, uintptr_t address, const char* source, uint64_t bytes, uint64_t& done) {
  if (source == zeros) {  // the zero page: costs the child nothing
    uffdio_zeropage request = {};
    request.range = {address, bytes};
    const long result = system_call(SYS_ioctl, descriptor, UFFDIO_ZEROPAGE, &request);
    done += request.zeropage > 0 ? static_cast<uint64_t>(request.zeropage) : 0;
    return result;
  }
  uffdio_copy request = {};
  request.dst = address;
  request.src = reinterpret_cast<uint64_t>(source);
  request.len = bytes;
  const long result = system_call(SYS_ioctl, descriptor, UFFDIO_COPY, &request);
  done += request.copy > 0 ? static_cast<uint64_t>(request.copy) : 0;
  return result;
}

}  // namespace

bool prepare_fork_content() {
  if (bounce == nullptr) {
    bounce = static_cast<char*>(base::reserve_memory(3 * kBlockBytes));
    moved = bounce != nullptr ? bounce + kBlockBytes : nullptr;
    zeros = bounce != nullptr ? bounce + 2 * kBlockBytes : nullptr;
  }
  return bounce != nullptr;
}

const char* zeros_for_children() { return zeros; }

char* room_for_moved_content() { return moved; }

const char* read_content_back(uint64_t block) {
  const long failed = read_back(block);
  const bool has_pages = state_of(word_of(block).load(std::memory_order_acquire)) == kSinglePages;
  const bool right =
      has_pages ? absent_pages_are_right(block, bounce) : compare_with_written(block * kBlockBytes, bounce, kBlockBytes);
  if (failed != 0 || !right) {
    base::die("reading memory back from the storage in %s for a forked child failed: %s", base::settings().storage,
              strerror(failed != 0 ? static_cast<int>(-failed) : EIO));
  }
  if (has_pages) {
    overlay_pages(block, bounce);
  }
  return bounce;
}

long copy_to_child(int descriptor, uintptr_t address, const char* source, uint64_t bytes) {
  uint64_t done = 0;
  uint64_t step = bytes;
  while (done < bytes) {
    const uint64_t left = bytes - done;
    const uint64_t now = std::min(left, step);
    const long result = copy_step(descriptor, address + done, source == zeros ? zeros : source + done, now, done);
    if (!base::is_error(result)) {
      continue;
    }
    if (result == -EEXIST) {
      done += kPageBytes;
    } else if (result == -ENOENT && step > kPageBytes) {
      step = kPageBytes;  // the child has changed rights on a part, or mapped something over it: page by page
    } else if (result == -ENOENT) {
      done += kPageBytes;
    } else if (result != -EAGAIN && result != -EINTR) {
      return result;
    }
  }
  uffdio_range range = {address, bytes};  // a thread may wait on a page that was there already
  (void)system_call(SYS_ioctl, descriptor, UFFDIO_WAKE, &range);
  return 0;
}

long map_in_child(int descriptor, uintptr_t address, uint64_t bytes) {
  uint64_t done = 0;
  uint64_t step = bytes;
  while (done < bytes) {
    uffdio_continue request = {};
    request.range = {address + done, std::min(bytes - done, step)};
    const long result = system_call(SYS_ioctl, descriptor, UFFDIO_CONTINUE, &request);
    done += request.mapped > 0 ? static_cast<uint64_t>(request.mapped) : 0;
    if (!base::is_error(result)) {
      continue;
    }
    if (result == -EEXIST || (result == -ENOENT && step == kPageBytes)) {
      done += kPageBytes;
    } else if (result == -ENOENT) {
      step = kPageBytes;  // the child has changed rights on a part, or mapped something over it: page by page
    } else if (result != -EAGAIN && result != -EINTR) {
      return result;
    }
  }
  uffdio_range range = {address, bytes};
  (void)system_call(SYS_ioctl, descriptor, UFFDIO_WAKE, &range);
  return 0;
}

}  // namespace headroom::pager
