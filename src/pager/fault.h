// Serving faults: first touches, first writes, and blocks that are on storage; see fault.cc.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

#include "pager/single_pages.h"

namespace headroom::pager {

struct Request;

/// Makes `block`, or at least that page of it, accessible if that is possible now; false if it waits for storage or room.
bool serve(uint64_t block, bool write, uint32_t page = kWholeBlock);
void take_fault(uint64_t block, uint32_t page, bool write, int32_t thread, Request* request);

}  // namespace headroom::pager
