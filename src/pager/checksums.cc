// See checksums.h.
#include "pager/checksums.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "arena/arena.h"
#include "base/system_calls.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using arena::kPageBytes;

uint32_t* checksums = nullptr;  // of each page of the file; nullptr: not wanted

uint32_t checksum_of(const void* memory, uint64_t at) {
  return static_cast<uint32_t>(XXH3_64bits(static_cast<const char*>(memory) + at, kPageBytes));
}

}  // namespace

bool open_checksums(uint64_t pages) {
  checksums = static_cast<uint32_t*>(base::reserve_memory(pages * sizeof *checksums));
  return checksums != nullptr;
}

void note_written(uint64_t offset, const void* memory, uint64_t bytes) {
  for (uint64_t at = 0; checksums != nullptr && at < bytes; at += kPageBytes) {
    checksums[(offset + at) / kPageBytes] = checksum_of(memory, at);
  }
}

bool compare_with_written(uint64_t offset, const void* memory, uint64_t bytes) {
  if (checksums == nullptr) {
    return true;
  }
  bool right = true;
  for (uint64_t at = 0; at < bytes; at += kPageBytes) {
    right = right && checksums[(offset + at) / kPageBytes] == checksum_of(memory, at);
  }
  trace::count(trace::Counter::kPagesChecked, bytes / kPageBytes);
  return right;
}

}  // namespace headroom::pager
