// See access_rights.h.
#include "heap/access_rights.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>

#include "base/log.h"
#include "base/system_calls.h"
#include "pager/pager.h"

namespace headroom::heap {
namespace {

std::atomic<bool> rights_changed{false};

bool rights_are_watched() { return pager::engine() == base::EngineChoice::kSigsegv; }

}  // namespace

bool prepare_for_rights(void* address, uint64_t bytes) {
  rights_changed.store(true, std::memory_order_relaxed);
  if (!rights_are_watched() || pager::try_pin(address, bytes)) {
    return true;
  }
  static std::atomic<bool> said{false};
  if (!said.exchange(true, std::memory_order_relaxed)) {
    base::log_warning(
        "the program changes access rights of more memory than may be kept resident for that with the engine sigsegv; it is "
        "told that memory is exhausted. Use --engine userfaultfd or userfaultfd-user, or raise --large above the size of what "
        "it "
        "allocated there");
  }
  errno = ENOMEM;
  return false;
}

void give_rights_back(void* address, uint64_t bytes) {
  if (!rights_changed.load(std::memory_order_relaxed)) {
    return;
  }
  if (!rights_are_watched()) {
    (void)base::system_call(SYS_mprotect, address, bytes, PROT_READ | PROT_WRITE);
    return;
  }
  char* at = static_cast<char*>(address);
  char* const end = at + bytes;
  while (at < end) {
    const uint64_t left_of_block = arena::kBlockBytes - reinterpret_cast<uintptr_t>(at) % arena::kBlockBytes;
    const auto left = static_cast<uint64_t>(end - at);
    const uint64_t piece = std::min(left, left_of_block);
    if (pager::is_pinned(at)) {
      (void)base::system_call(SYS_mprotect, at, piece, PROT_READ | PROT_WRITE);
    }
    at += piece;
  }
}

void zero_whatever_the_rights(void* address, uint64_t bytes) {
  if (!rights_changed.load(std::memory_order_relaxed)) {
    memset(address, 0, bytes);
    return;
  }
  // Through the other mapping of the memory, a piece that may be held at a time.
  char* at = static_cast<char*>(address);
  while (bytes > 0) {
    const uint64_t most = pager::largest_hold();
    const uint64_t piece = std::min(bytes, most);
    pager::hold(at, piece, true);
    memset(pager::alias_of(at), 0, piece);
    pager::drop_hold(at, piece, true);
    at += piece;
    bytes -= piece;
  }
}

}  // namespace headroom::heap
