// Serving accesses, and those that wait (waiting_accesses.h); see serving.cc.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

#include "pager/requests.h"
#include "pager/single_pages.h"

namespace headroom::pager {

/// Makes the request's blocks accessible, now or when that is possible, and ends the request then.
void bring(Request& request);
/// Serves faults that wait for these blocks (for that page of them) as far as that is possible now; true if there were any.
bool serve_waiting(uint64_t first, uint64_t count, uint32_t page = kWholeBlock);
/// Retries everything that waits, and continues reading ahead.
void pump();

}  // namespace headroom::pager
